package fence

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// A mark file has four blocks. A block is one record, as a line of text, and newlines
// up to the block's size:
//
//	wardmote-fence 2 count=12 token=1234 crc32c=a816a9a4
//
// The store number n writes the record with count n twice: into the first two blocks
// if n is even, into the last two if n is odd. So a store never touches the record
// before it, and needs no rename: one write in place and one sync make it durable.
//
// The two copies tell a torn store from a damaged record. A disk writes one block after
// the other. So a power loss in a store leaves each block old or new, and tears at most
// one block. A pair of blocks without any valid record was damaged later, and may have
// held the highest mark. With a single copy a damaged record would look like a torn
// store, and the mark would fall.
const (
	// A power loss in the middle of a sector can tear the whole sector. The sectors
	// of present disks have 512 or 4096 bytes.
	blockSize = 4096
	pairSize  = 2 * blockSize
	markSize  = 2 * pairSize
)

const markHead = "wardmote-fence 2 count="

// maxLine is the length in bytes of the longest record: head, 20 digits, token, 20
// digits, checksum. A newline follows.
const maxLine = len(markHead) + 20 + len(" token=") + 20 + len(" crc32c=00000000")

// A record is one store of the mark.
type record struct {
	count uint64 // number of the store; the latest record is the one with the highest
	token Token  // the mark
}

// firstMark is the content of a new mark file: a mark of zero.
func firstMark() []byte { return append(record{count: 0}.pair(), record{count: 1}.pair()...) }

// offset is the place of the record in the mark file.
func (r record) offset() int64 { return int64(r.count%2) * pairSize }

var newlines = bytes.Repeat([]byte{'\n'}, blockSize)

// pair returns the two blocks of the record.
func (r record) pair() []byte {
	b := append(newlines[:blockSize:blockSize], newlines...)
	line := r.line()
	copy(b, line)
	copy(b[blockSize:], line)
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// line returns the text of the record. The checksum covers the text before " crc32c".
func (r record) line() []byte {
	line := append(make([]byte, 0, maxLine), markHead...)
	line = strconv.AppendUint(line, r.count, 10)
	line = append(line, " token="...)
	line = strconv.AppendUint(line, uint64(r.token), 10)
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(line, castagnoli))
	return hex.AppendEncode(append(line, " crc32c="...), sum)
}

// decodeMark returns the latest record of a whole mark file. The content may be that of
// any store, interrupted at any point. Every other content is an error.
func decodeMark(b []byte) (record, error) {
	switch {
	case len(b) == 0:
		return record{}, errors.New("empty")
	case len(b) != markSize:
		return record{}, fmt.Errorf("the length is not %d bytes", markSize)
	}
	var latest record
	for parity := range uint64(2) {
		first, err1 := decodeBlock(b[parity*pairSize:][:blockSize], parity)
		second, err2 := decodeBlock(b[parity*pairSize+blockSize:][:blockSize], parity)
		if err1 != nil && err2 != nil {
			return record{}, fmt.Errorf("both copies of a record: %w", err1)
		}
		if err1 != nil {
			first = second
		}
		if err2 != nil {
			second = first
		}
		pair, err := later(first, second)
		if err == nil && parity == 1 {
			pair, err = later(latest, pair)
		}
		if err != nil {
			return record{}, err
		}
		latest = pair
	}
	return latest, nil
}

// later returns the record that was stored later. Tokens never fall from store to store.
func later(a, b record) (record, error) {
	if a.count > b.count {
		a, b = b, a
	}
	if a.token > b.token || a.count == b.count && a.token != b.token {
		return record{}, fmt.Errorf("record %d has token %d, and record %d has token %d", a.count, a.token, b.count, b.token)
	}
	return b, nil
}

// decodeBlock returns the record of a block with a count of this parity. Each record has
// exactly one encoding: decodeBlock reads the numbers, encodes the numbers again and
// compares the two encodings.
func decodeBlock(b []byte, parity uint64) (record, error) {
	line, _, ok := bytes.Cut(b[:maxLine+1], newlines[:1])
	rest, head := bytes.CutPrefix(line, []byte(markHead))
	if !ok || !head {
		return record{}, errors.New("no mark, or one of another version")
	}
	count, rest, ok := bytes.Cut(rest, []byte(" token="))
	if !ok {
		return record{}, errors.New("cut off")
	}
	digits, _, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return record{}, errors.New("cut off")
	}
	n, err := strconv.ParseUint(string(count), 10, 64)
	if err != nil {
		return record{}, errors.New("the count is not a number")
	}
	t, err := ParseToken(string(digits))
	if err != nil {
		return record{}, errors.New("the token is not a number")
	}
	r := record{n, t}
	switch {
	case !bytes.Equal(line, r.line()):
		return record{}, errors.New("checksum does not match")
	case !bytes.Equal(b[len(line):], newlines[len(line):]):
		return record{}, errors.New("text behind the record")
	case n%2 != parity:
		return record{}, errors.New("in the place of another record")
	}
	return r, nil
}
