package probe

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func dump(v any) string {
	var b strings.Builder
	show(&b, reflect.ValueOf(v))
	return b.String()
}

// show prints what is not zero, without positions.
func show(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		show(b, v.Elem())
	case reflect.Struct:
		b.WriteString("{")
		sep := ""
		for i := range v.NumField() {
			if n := v.Type().Field(i).Name; n != "Pos" && n != "Source" && !v.Field(i).IsZero() {
				fmt.Fprintf(b, "%s%s:", sep, n)
				show(b, v.Field(i))
				sep = " "
			}
		}
		b.WriteString("}")
	case reflect.Slice:
		b.WriteString("[")
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(" ")
			}
			show(b, v.Index(i))
		}
		b.WriteString("]")
	default:
		fmt.Fprintf(b, "%v", v)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"libc:open", "{Kind:2 Object:libc Point:{Text:open}}"},
		{"libssl.so.3:SSL_write(ssl, buf: bytes[num], num: int)", "{Kind:2 Object:libssl.so.3 Point:{Text:SSL_write} Args:[{Name:ssl} {Name:buf Type:{Name:bytes Array:true Count:{Arg:num}}} {Name:num Type:{Name:int}}] Typed:true}"},
		{"./app:parse(p: struct point*, n: i32) -> i32", "{Kind:2 Object:./app Point:{Text:parse} Args:[{Name:p Type:{Name:struct point Pointers:1}} {Name:n Type:{Name:i32}}] Typed:true Ret:{Name:i32}}"},
		{"./app:'std::vector<int>::push_back*'", "{Kind:2 Object:./app Point:{Match:1 Text:std::vector<int>::push_back*}}"},
		{"./app:main.(*Server).Handle", "{Kind:2 Object:./app Point:{Text:main.(*Server).Handle}}"},
		{"./app:main.(*Server).Handle(a: int)", "{Kind:2 Object:./app Point:{Text:main.(*Server).Handle} Args:[{Name:a Type:{Name:int}}] Typed:true}"},
		{"./app:0x1a40(x: u64 @x1, v: u32 @[sp+0x30-0x2c])", "{Kind:2 Object:./app Point:{Match:3 Offset:6720} Args:[{Name:x Type:{Name:u64} Place:{Reg:x1}} {Name:v Type:{Name:u32} Place:{Deref:{Reg:sp Const:4}}}] Typed:true}"},
		{"kernel:vfs_read(file.f_path.dentry.d_iname: str, count)", "{Kind:3 Point:{Text:vfs_read} Args:[{Name:file Path:[{Member:f_path} {Member:dentry} {Member:d_iname}] Type:{Name:str}} {Name:count}] Typed:true}"},
		{"tp:sched:sched_switch", "{Kind:4 Object:sched Point:{Text:sched_switch}}"},
		{"usdt:libc:setjmp", "{Kind:5 Object:libc Point:{Text:setjmp}}"},
		{"usdt:./x:prov:name", "{Kind:5 Object:./x Provider:prov Point:{Text:name}}"},
		{"break:./app:parse+0x10", "{Kind:6 Object:./app Point:{Text:parse Offset:16}}"},
		{"watch:./app:counter:w8", "{Kind:7 Object:./app Point:{Text:counter} Mode:w Width:8}"},
		{"watch:0x7ffd1000:rw4", "{Kind:7 Point:{Match:3 Offset:2147291136} Mode:rw Width:4}"},
		{"libc:/^mem/", "{Kind:2 Object:libc Point:{Match:2 Text:^mem}}"},
		{"libc:mem*() entry", "{Kind:2 Object:libc Point:{Match:1 Text:mem*} When:1 Typed:true}"},
		{`libc:open(path: str, flags: open_flags) -> int if path ~ "/etc/*" && ret < 0 || errno in {2, 13}`,
			"{Kind:2 Object:libc Point:{Text:open} Args:[{Name:path Type:{Name:str}} {Name:flags Type:{Name:open_flags}}] Typed:true Ret:{Name:int} If:{Op:1 X:{Op:2 X:{Op:11 X:{Name:path} Y:{Text:/etc/* IsText:true}} Y:{Op:6 X:{Name:ret} Y:{}}} Y:{Op:13 X:{Name:errno} Y:{Items:[{Num:2} {Num:13}]}}}}"},
		{`x:f if duration > 1ms do stop limit 10`, "{Kind:2 Object:x Point:{Text:f} If:{Op:8 X:{Name:duration} Y:{Num:1000000}} Do:[{Kind:1 Num:19} {Kind:2 Num:10}]}"},
		{`x:f(a) if !(a & 4) && a.b->c[3] == -1 do signal(SIGUSR1) sample 1/100`, "{Kind:2 Object:x Point:{Text:f} Args:[{Name:a}] Typed:true If:{Op:2 X:{Op:3 X:{Op:10 X:{Name:a} Y:{Num:4}}} Y:{Op:4 X:{Name:a Path:[{Member:b} {Member:c} {Index:3}]} Y:{Num:1 Neg:true}}} Do:[{Kind:1 Num:10} {Kind:3 Num:100}]}"},
		{`x:f if caller in "libfoo.so" && stack has "parse"`, "{Kind:2 Object:x Point:{Text:f} If:{Op:2 X:{Op:13 X:{Name:caller} Y:{Text:libfoo.so IsText:true}} Y:{Op:14 X:{Name:stack} Y:{Text:parse IsText:true}}}}"},
		{"'odd:name.so':f return", "{Kind:2 Object:odd:name.so Point:{Text:f} When:2}"},
		{"x:f(argv: str[], v: u32[4], s: const char *)", "{Kind:2 Object:x Point:{Text:f} Args:[{Name:argv Type:{Name:str Array:true}} {Name:v Type:{Name:u32 Array:true Count:{Const:4}}} {Name:s Type:{Name:char Pointers:1}}] Typed:true}"},
		{"x:Foo::bar<int, 3>(n: std::vector<int>&& )", ""},
		{"x:Foo::bar<int, 3>(n: std::vector<int>)", "{Kind:2 Object:x Point:{Text:Foo::bar<int, 3>} Args:[{Name:n Type:{Name:std::vector<int>}}] Typed:true}"},
	} {
		s, err := Parse(c.src)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s is taken: %s", c.src, dump(s))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		if got := dump(s); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.src, got, c.want)
		}
	}
}

// Errors say where they are.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		src string
		pos int
		say string
	}{
		{"open", 0, "colon is missing"},
		{":open", 0, "missing before the colon"},
		{"libc:", 5, "missing"},
		{"libc:open(", 10, "argument"},
		{"libc:open(a b)", 12, "comma"},
		{"libc:open(a: )", 13, "type"},
		{"libc:open if", 12, "value"},
		{"libc:open if a ==", 17, "value"},
		{"libc:open whenever", 10, "not understood"},
		{"libc:open if a ~ 3", 15, "quotes"},
		{"libc:open if a == 5q", 18, "not a number"},
		{"libc:open do jump", 12, "no such action"},
		{"libc:'open", 5, "not closed"},
		{"watch:x", 7, "how to watch"},
		{"watch:x:q", 8, "no way to watch"},
		{"libc:open(a: int @[sp)", 21, "]"},
		{"libc:open return entry", 17, "exclude"},
	} {
		_, err := Parse(c.src)
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		if se.Pos != c.pos || !strings.Contains(se.Msg, c.say) {
			t.Errorf("%s: at %d %q, want at %d %q", c.src, se.Pos, se.Msg, c.pos, c.say)
		}
	}
}

func TestIsProbe(t *testing.T) {
	for src, want := range map[string]bool{"openat": false, "%file,!stat": false, "/^sched_/": false, "trace=open": false, "libc:open": true, "/usr/bin/x:main": true,
		"tp:a:b": true, "libc:open if a == 3": true, "signal=!SIGIO": false, "/a:b/": false} {
		if got := IsProbe(src); got != want {
			t.Errorf("%s: %v", src, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"libc:open", `a:b(c: d*[e] @[f+1].4) -> int if g.h[1] ~ "x" && !(i in {1, "2"}) do stop limit 3`, "watch:x->y:w8", "a:/re/", "a:'q\\x41'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		s, err := Parse(src)
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.Pos < 0 || se.Pos > len(se.Expr) || se.Len < 1 {
				t.Errorf("%q: %#v", src, err)
			}
			return
		}
		if s.Source != src || s.Kind == KindInvalid {
			t.Errorf("%q: %+v", src, s)
		}
	})
}
