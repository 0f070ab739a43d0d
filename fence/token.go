package fence

import (
	"errors"
	"fmt"
	"strconv"
)

// Token numbers a grant: it is larger than the token of every grant before it,
// whatever the key. Zero is no token: guards refuse it with ErrUnfenced.
//
// A Token travels as text, and in JSON as a string, because many readers of
// JSON round numbers to a float's 53 bits.
type Token uint64

// ParseToken reads what String writes: a decimal number without sign, space or
// leading zero. It reads "0" too, so that text makes the round trip; no guard
// accepts that token.
func ParseToken(s string) (Token, error) {
	// ParseUint alone would take "007": two spellings of one token.
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

// quoted is s as an error shows it: a token may come from a stranger's header,
// so it is cut to 32 bytes.
func quoted(s string) string {
	if len(s) > 32 {
		return strconv.Quote(s[:32]) + "…"
	}
	return strconv.Quote(s)
}

// String returns the token as a decimal number.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// MarshalText returns what String does. It never fails.
func (t Token) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(t), 10), nil
}

// UnmarshalText reads what MarshalText wrote. A failure leaves t as it was.
func (t *Token) UnmarshalText(text []byte) error {
	p, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

// MarshalJSON returns the token as a JSON string. It never fails.
func (t Token) MarshalJSON() ([]byte, error) {
	return append(strconv.AppendUint([]byte{'"'}, uint64(t), 10), '"'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote; null, as everywhere in JSON,
// changes nothing. A JSON number is refused: whoever wrote it may have rounded
// it, and a rounded token can be a later holder's. A failure leaves t as it was.
func (t *Token) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return errors.New("fence: a token in JSON is a string, since numbers may have been rounded")
	}
	return t.UnmarshalText(data[1 : len(data)-1])
}
