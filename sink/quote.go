package sink

// HexMode says which strings are shown with hexadecimal escapes.
type HexMode uint8

const (
	HexNever  HexMode = iota
	HexOdd            // strings that hold anything but printable ASCII and white space (-x)
	HexAlways         // all strings (-xx)
	HexBytes          // in every string the bytes that have no other form (--strings-in-hex=non-ascii-chars)
)

const hexDigits = "0123456789abcdef"

// appendQuoted appends s between double quotes, as strace shows strings: printable ASCII as it is, the usual C escapes,
// and the shortest octal escape for all else, which covers control bytes, C1, and everything that is not ASCII.
func appendQuoted(b, s []byte, hex HexMode) []byte {
	b = append(b, '"')
	b = appendEscaped(b, s, hex, '"', '\\')
	return append(b, '"')
}

// appendEscaped appends s with the bytes q1 and q2 escaped too.
func appendEscaped(b, s []byte, hex HexMode, q1, q2 byte) []byte {
	if hex == HexAlways || hex == HexOdd && odd(s) {
		for _, c := range s {
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		}
		return b
	}
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != q1 && c != q2 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch {
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\v':
			b = append(b, '\\', 'v')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case hex == HexBytes:
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		default:
			// An octal digit that follows would be read as part of a shorter escape.
			full := i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '7'
			b = append(b, '\\')
			if full || c >= 0100 {
				b = append(b, '0'+c>>6)
			}
			if full || c >= 010 {
				b = append(b, '0'+c>>3&7)
			}
			b = append(b, '0'+c&7)
		}
	}
	return append(b, s[start:]...)
}

// odd reports a byte that is neither printable ASCII nor white space.
func odd(s []byte) bool {
	for _, c := range s {
		if (c < 0x20 || c > 0x7e) && !(c >= '\t' && c <= '\r') {
			return true
		}
	}
	return false
}
