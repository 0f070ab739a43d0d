package fence

import (
	"errors"
	"fmt"
	"strconv"
)

// Token numbers a grant. A token is larger than the token of every earlier grant
// of any key. Zero is no token: guards refuse zero with ErrUnfenced.
//
// A Token travels as text, and in JSON as a string, because many readers of
// JSON round numbers to a float's 53 bits.
type Token uint64

// ParseToken parses the text that String returns: a decimal number without sign,
// space or leading zero. On an error the token is 0. The text "0" is valid, so
// that every Token makes the round trip through text; no guard accepts token 0.
func ParseToken(s string) (Token, error) {
	// ParseUint would accept "007", and a token would have several spellings.
	if len(s) > 1 && s[0] == '0' {
		return 0, fmt.Errorf("fence: token %s has a leading zero", quoted(s))
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("fence: token %s exceeds 64 bits", quoted(s))
	}
	if err != nil {
		return 0, fmt.Errorf("fence: %s is not a token: want a decimal number", quoted(s))
	}
	return Token(n), nil
}

// quoted returns s in quotes for an error text, cut to 32 bytes, because the text
// may come from a stranger's header.
func quoted(s string) string {
	if len(s) > 32 {
		return strconv.Quote(s[:32]) + "…"
	}
	return strconv.Quote(s)
}

// String returns the token as a decimal number.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// MarshalText returns the token as a decimal number, like String. The error is
// always nil.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the text of MarshalText. On an error t is unchanged.
func (t *Token) UnmarshalText(text []byte) error {
	p, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

// MarshalJSON returns the token as a JSON string. The error is always nil.
func (t Token) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, t.String()), nil }

// UnmarshalJSON parses the JSON string of MarshalJSON. As everywhere in JSON,
// null changes nothing. A JSON number is refused, because its writer may have
// rounded the number, and a rounded token can belong to a later holder. On an
// error t is unchanged.
func (t *Token) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return errors.New("fence: a token in JSON is a string, since numbers may have been rounded")
	}
	return t.UnmarshalText(data[1 : len(data)-1])
}
