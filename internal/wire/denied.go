package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxReason bounds a DeniedReason, in bytes.
const maxReason = 256

// DeniedReason returns text as the body of a CodeDenied: printable, and cut to
// maxReason bytes. The receiver applies DeniedReason again, since the sender may be
// anybody.
func DeniedReason[T string | []byte](text T) string {
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(text[:min(len(text), 4*maxReason)]))
	for len(clean) > maxReason {
		_, n := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-n]
	}
	return clean
}
