package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// File modes, include/uapi/linux/stat.h.
const (
	sIFMT, sIFCHR, sIFBLK     = 0o170000, 0o020000, 0o060000
	sISUID, sISGID, sISVTX    = 0o4000, 0o2000, 0o1000
	oAccmode, oCreat, oTmpBit = 3, 0o100, 0o20000000 // asm-generic/fcntl.h; the same on x86 and arm
)

// Mode adds a file mode with its type: S_IFREG|0644, S_IFDIR|S_ISVTX|0777.
func (c *Cx) Mode(v uint64) {
	name, named := constant.FileType.Name(v & sIFMT)
	if v&(sIFMT|sISUID|sISGID|sISVTX) == 0 || v&sIFMT != 0 && !named {
		c.Oct(v)
		return
	}
	c.Begin(event.Node{Kind: event.KindFlags, Num: v, Attr: event.AttrOctal})
	if named {
		c.Sym(name, v&sIFMT)
		v &^= sIFMT
	}
	for _, b := range [...]struct {
		name string
		bit  uint64
	}{{"S_ISUID", sISUID}, {"S_ISGID", sISGID}, {"S_ISVTX", sISVTX}} {
		if v&b.bit != 0 {
			c.Sym(b.name, b.bit)
			v &^= b.bit
		}
	}
	c.Oct(v)
	c.End()
}

func aSymMode(c *Cx, i int) { c.Mode(uint64(uint16(c.Arg[i]))) }

// Umode adds permission bits alone: 0644.
func aUmode(c *Cx, i int) { c.Oct(uint64(uint16(c.Arg[i]))) }

// Dev adds a device number in the kernel's encoding (new_encode_dev, include/linux/kdev_t.h).
func (c *Cx) Dev(v uint64) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: "makedev", Num: v, Attr: event.AttrHex})
	c.Hex(v>>8&0xfff | v>>32&^0xfff)
	c.Hex(v&0xff | v>>12&0xffffff00)
	c.End()
}

// OpenFlags adds the flags of open(2): the access mode first, then the rest.
func (c *Cx) OpenFlags(v uint64) {
	mode := [...]string{"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"}[v&oAccmode]
	rest := v &^ oAccmode
	if rest == 0 {
		c.Sym(mode, v)
		return
	}
	c.Begin(event.Node{Kind: event.KindFlags, Num: v})
	c.Sym(mode, v&oAccmode)
	s := constant.OpenFlags.For(c.ABI.Name)
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Num != 0 && e.Num&oAccmode == 0 && rest&e.Num == e.Num {
			c.Sym(e.Name, e.Num)
			rest &^= e.Num
		}
	}
	if rest&openat2Regular != 0 {
		c.Sym("OPENAT2_REGULAR", openat2Regular)
		rest &^= openat2Regular
	}
	if rest != 0 {
		c.Hex(rest)
	}
	c.End()
}

// openat2Regular is OPENAT2_REGULAR, linux/openat2.h; only openat2 has flags of that width.
const openat2Regular = 1 << 32

// aFileFlags are flags of open(2) without an access mode.
func aFileFlags(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	if v == 0 {
		c.Hex(0)
		return
	}
	s := constant.OpenFlags.For(c.ABI.Name)
	c.beginFlags(v)
	for k := range s.Entries {
		if e := &s.Entries[k]; e.Num&oAccmode == 0 && e.Num != 0 && v&e.Num == e.Num {
			c.Sym(e.Name, e.Num)
			v &^= e.Num
		}
	}
	switch {
	case v == 0:
	case v == uint64(uint32(c.Arg[i])):
		c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
	default:
		c.Hex(v)
	}
	c.End()
}

func aOpenFlags(c *Cx, i int) { c.OpenFlags(uint64(uint32(c.Arg[i]))) }

// needsMode reports that open(2) with these flags takes a mode.
func needsMode(flags uint64) bool { return flags&oCreat != 0 || flags&oTmpBit != 0 }
