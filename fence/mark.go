package fence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// A mark file is one line:
//
//	wardmote-fence 1 token=1234 crc32c=0f1e2d3c
//
// The checksum covers the text before " crc32c". Each token has exactly one
// encoding, so decodeMark reads the number, encodes the number again and compares
// the two encodings.
const markHead = "wardmote-fence 1 token="

// maxMark is the length in bytes of the longest mark file: head, 20 digits,
// checksum, newline.
const maxMark = len(markHead) + 20 + len(" crc32c=00000000\n")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeMark(t Token) []byte {
	line := markHead + t.String()
	return fmt.Appendf(nil, "%s crc32c=%08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// decodeMark returns the token of a whole mark file. Every content that
// encodeMark does not write is an error. That includes the empty file and every
// truncated file, because the only newline is the last byte of the line.
func decodeMark(b []byte) (Token, error) {
	switch {
	case len(b) == 0:
		return 0, errors.New("empty")
	case len(b) > maxMark:
		return 0, fmt.Errorf("longer than %d bytes", maxMark)
	}
	rest, ok := strings.CutPrefix(string(b), markHead)
	if !ok {
		return 0, errors.New("not a fence mark, or one of another version")
	}
	digits, _, ok := strings.Cut(rest, " ")
	if !ok {
		return 0, errors.New("truncated")
	}
	t, err := ParseToken(digits)
	if err != nil {
		return 0, errors.New("the token is not a number")
	}
	if !bytes.Equal(b, encodeMark(t)) {
		return 0, errors.New("checksum does not match")
	}
	return t, nil
}
