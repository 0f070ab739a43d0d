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
// The checksum covers what stands before its space. Each token has exactly one
// encoding, so decoding is: read the number, encode it, and compare.
const markHead = "wardmote-fence 1 token="

// maxMark bounds a mark file: head, 20 digits, checksum, newline.
const maxMark = len(markHead) + 20 + len(" crc32c=00000000\n")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeMark(t Token) []byte {
	line := markHead + t.String()
	return fmt.Appendf(nil, "%s crc32c=%08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// decodeMark reads a whole mark file. Whatever encodeMark cannot have written
// is an error, the empty file and any truncation among it: the line's last byte
// is its only newline.
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
		return 0, errors.New("its token is not a number")
	}
	if !bytes.Equal(b, encodeMark(t)) {
		return 0, errors.New("checksum does not match")
	}
	return t, nil
}
