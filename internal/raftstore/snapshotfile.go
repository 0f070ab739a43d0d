package raftstore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"
)

// A snapshot's file is:
//
//   - the magic, and the version in two bytes
//   - the length of the description in four bytes, the description in JSON, and the
//     CRC32C of all bytes so far, so that List need not read the data
//   - the data
//   - the length of the data in eight bytes, and the CRC32C of all bytes before it
//
// The file has no other bytes.
const (
	snapshotMagic   = "wmsnap\x00\n"
	snapshotVersion = 1
	snapshotPrefix  = len(snapshotMagic) + 2 + 4
	maxDescription  = 1 << 20
	snapshotTail    = 8 + sumLen
)

// description is what raft wants to know of a snapshot besides its size.
type description struct {
	ID                 string
	Index, Term        uint64
	Configuration      raft.Configuration
	ConfigurationIndex uint64
}

// encodeSnapshotHead returns the bytes in front of the data.
func encodeSnapshotHead(meta *raft.SnapshotMeta) ([]byte, error) {
	body, err := json.Marshal(description{meta.ID, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex})
	if err != nil {
		return nil, fmt.Errorf("cluster: describing a snapshot: %w", err)
	}
	if len(body) > maxDescription {
		return nil, fmt.Errorf("cluster: describing a snapshot: %d bytes exceed %d", len(body), maxDescription)
	}
	head := binary.BigEndian.AppendUint16([]byte(snapshotMagic), snapshotVersion)
	head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
	head = append(head, body...)
	return binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)), nil
}

func snapshotSize(size uint64) []byte { return binary.BigEndian.AppendUint64(nil, size) }
func snapshotSum(sum uint32) []byte   { return binary.BigEndian.AppendUint32(nil, sum) }

// readSnapshotMeta reads the head and the tail of a snapshot's file of the size, and
// compares its length. The data begin at begin. The error matches ErrDamaged if the file is
// no whole snapshot. Memory is bounded by the length of the file.
func readSnapshotMeta(f io.ReaderAt, size int64) (meta *raft.SnapshotMeta, begin int64, err error) {
	if size < int64(snapshotPrefix+sumLen+snapshotTail) {
		return nil, 0, fmt.Errorf("%w: cut to %d bytes", ErrDamaged, size)
	}
	prefix := make([]byte, snapshotPrefix)
	if _, err := f.ReadAt(prefix, 0); err != nil {
		return nil, 0, err
	}
	if string(prefix[:len(snapshotMagic)]) != snapshotMagic {
		return nil, 0, fmt.Errorf("%w: not a snapshot", ErrDamaged)
	}
	length := int64(binary.BigEndian.Uint32(prefix[snapshotPrefix-4:]))
	begin = int64(snapshotPrefix) + length + sumLen
	if length > maxDescription || begin+snapshotTail > size {
		return nil, 0, fmt.Errorf("%w: a description of %d bytes", ErrDamaged, length)
	}
	head := make([]byte, begin)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, 0, err
	}
	sealed := head[:begin-sumLen]
	if crc32.Checksum(sealed, castagnoli) != binary.BigEndian.Uint32(head[begin-sumLen:]) {
		return nil, 0, fmt.Errorf("%w: its description does not match its checksum", ErrDamaged)
	}
	if v := binary.BigEndian.Uint16(sealed[len(snapshotMagic):]); v != snapshotVersion {
		return nil, 0, fmt.Errorf("written by version %d, this program reads version %d", v, snapshotVersion)
	}
	var d description
	if err := json.Unmarshal(sealed[snapshotPrefix:], &d); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var claimed [8]byte
	if _, err := f.ReadAt(claimed[:], size-snapshotTail); err != nil {
		return nil, 0, err
	}
	data := size - begin - snapshotTail
	if n := binary.BigEndian.Uint64(claimed[:]); n != uint64(data) {
		return nil, 0, fmt.Errorf("%w: %d bytes of data of %d", ErrDamaged, data, n)
	}
	return &raft.SnapshotMeta{
		Version: 1, ID: d.ID, Index: d.Index, Term: d.Term, Size: data,
		Configuration: d.Configuration, ConfigurationIndex: d.ConfigurationIndex,
	}, begin, nil
}

// checkSnapshot compares the checksum of a whole file, whose data end at end.
func checkSnapshot(f io.ReaderAt, end int64) error {
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, end+8)); err != nil {
		return err
	}
	var stored [sumLen]byte
	if _, err := f.ReadAt(stored[:], end+8); err != nil {
		return err
	}
	if sum.Sum32() != binary.BigEndian.Uint32(stored[:]) {
		return fmt.Errorf("%w: its data do not match their checksum", ErrDamaged)
	}
	return nil
}
