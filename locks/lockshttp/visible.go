package lockshttp

import (
	"strconv"
	"strings"
	"unicode"
)

// visible returns s with each character that a reader would not see, or that changes the
// order of others, as its number: "\u{202e}". A backslash is doubled, so two texts never
// look the same for that reason. The page's script has the same function.
func visible(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case hidden(r):
			b.WriteString(`\u{` + strconv.FormatInt(int64(r), 16) + `}`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hidden reports whether visible changes r.
func hidden(r rune) bool {
	return r == '\\' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp) ||
		r != ' ' && unicode.Is(unicode.Zs, r)
}
