package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/internal/wire"
)

// The record's file is the magic, the version in two bytes, the length of the
// record in four bytes, the record in the encoding of messages, and the SHA-256 of
// all of this. The file has no other bytes.
//
// A changed record is worse than none: a lower ballot breaks a promise, another
// generation lets a raft ID vote twice. Every change of a stored file is found,
// except the exchange for an older whole file, which nothing in the file can tell.
const (
	magic     = "wardmote\x00id\n"
	version   = 1
	headLen   = len(magic) + 2 + 4
	maxFile   = 1 << 20 // far above any record: 64 peers, 16 lives, 64 names
	minLength = headLen + sha256.Size
)

// ErrDamaged says that the record is not as it was stored.
var ErrDamaged = errors.New("damaged")

// encode returns the file of a record.
func encode(rec *Record) []byte { return seal(wire.Marshal(rec), version) }

// seal returns the file of an encoded record in a version.
func seal(body []byte, version uint16) []byte {
	data := make([]byte, 0, minLength+len(body))
	data = append(data, magic...)
	data = binary.BigEndian.AppendUint16(data, version)
	data = binary.BigEndian.AppendUint32(data, uint32(len(body)))
	data = append(data, body...)
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

// decode reads a file of encode. The error matches ErrDamaged, unless a program of
// another version has written the file.
func decode(data []byte) (Record, error) {
	var rec Record
	switch {
	case len(data) == 0:
		return rec, fmt.Errorf("%w: empty", ErrDamaged)
	case len(data) > maxFile:
		return rec, fmt.Errorf("%w: more than %d bytes", ErrDamaged, maxFile)
	case len(data) < minLength:
		return rec, fmt.Errorf("%w: cut to %d bytes", ErrDamaged, len(data))
	case string(data[:len(magic)]) != magic:
		return rec, fmt.Errorf("%w: not a member's identity", ErrDamaged)
	}
	// The sum comes before the version: a version that a flipped bit has made is
	// damage, and no reason to look for another program.
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return rec, fmt.Errorf("%w: its checksum does not match its bytes", ErrDamaged)
	}
	if v := binary.BigEndian.Uint16(data[len(magic):]); v != version {
		return rec, fmt.Errorf("written by version %d, this program reads version %d", v, version)
	}
	body := data[headLen:end]
	if n := binary.BigEndian.Uint32(data[headLen-4:]); int64(n) != int64(len(body)) {
		return rec, fmt.Errorf("%w: %d bytes of a record of %d", ErrDamaged, len(body), n)
	}
	if err := wire.Unmarshal(body, &rec); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return rec, nil
}
