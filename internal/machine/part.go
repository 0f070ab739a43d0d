package machine

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Part is a caller's part of a group, as an EventPart tells it. A Part is whole, not a
// difference from the Part before: a lost event does no harm.
type Part struct {
	Version uint64   // of the group; the Part of the largest Version counts
	Shards  uint32   // the group's number of shards, at most MaxShards
	Resized bool     // the group is being resized: the caller ends its works and leaves
	Drain   uint64   // milliseconds from Asked until the context of a handed-over work ends
	Mine    []uint32 // the shards assigned to the caller, ascending
}

// Marks of an encoded Part: never renumber.
const (
	partResized = 1 << iota
	partBits    // the shards are a bitmap, and not a list
	partMarks   = 1<<iota - 1
)

var errPart = errors.New("machine: not the part of a group")

// AppendPart appends the encoding of p to dst: marks, numbers, and the shards as a list
// of gaps or, where this is shorter, as a bitmap of 2 KiB at most.
func AppendPart(dst []byte, p Part) []byte {
	var list [4 << 10]byte
	gaps := binary.AppendUvarint(list[:0], uint64(len(p.Mine)))
	next, bitmap := uint32(0), int(p.Shards+7)/8
	for _, shard := range p.Mine {
		if len(gaps) > bitmap {
			break
		}
		gaps = binary.AppendUvarint(gaps, uint64(shard-next))
		next = shard + 1
	}
	asBits := len(gaps) > bitmap
	dst = append(dst, byte(bit(p.Resized, partResized)|bit(asBits, partBits)))
	dst = appendUvarints(dst, p.Version, uint64(p.Shards), p.Drain)
	if !asBits {
		return append(dst, gaps...)
	}
	at := len(dst)
	dst = append(dst, make([]byte, bitmap)...)
	for _, shard := range p.Mine {
		dst[at+int(shard/8)] |= 1 << (shard % 8)
	}
	return dst
}

// DecodePart decodes the Value of an EventPart. DecodePart refuses a Part over the
// limits and each encoding but the one of AppendPart.
func DecodePart(b []byte) (Part, error) {
	r := reader{b: b}
	marks := r.byte()
	p := Part{Resized: marks&partResized != 0, Version: r.uvarint()}
	number := r.uvarint()
	p.Drain = r.uvarint()
	if r.err == nil && (marks >= partMarks+1 || number > MaxShards) {
		r.fail(errPart)
	}
	p.Shards = uint32(number)
	if marks&partBits != 0 {
		p.Mine = r.bitmap(p.Shards)
	} else {
		p.Mine = r.gaps(p.Shards)
	}
	if err := r.finish(); err != nil {
		return Part{}, err
	}
	if again := AppendPart(make([]byte, 0, len(b)), p); string(again) != string(b) {
		return Part{}, errPart
	}
	return p, nil
}

// gaps reads an ascending list of numbers below limit.
func (r *reader) gaps(limit uint32) []uint32 {
	n := r.count(int(limit))
	if n == 0 {
		return nil
	}
	list := make([]uint32, 0, n)
	for next := uint64(0); len(list) < n; next++ {
		if next += r.uvarint(); r.err != nil || next >= uint64(limit) {
			r.fail(errPart)
			return nil
		}
		list = append(list, uint32(next))
	}
	return list
}

// bitmap reads a bitmap of so many numbers, as an ascending list.
func (r *reader) bitmap(limit uint32) (list []uint32) {
	b := r.take(int(limit+7) / 8)
	n := 0
	for _, octet := range b {
		n += bits.OnesCount8(octet)
	}
	if n > 0 {
		list = make([]uint32, 0, n)
	}
	for i, octet := range b {
		for j := range uint32(8) {
			if octet&(1<<j) == 0 {
				continue
			}
			if n := uint32(i)*8 + j; n < limit {
				list = append(list, n)
			} else {
				r.fail(errPart)
			}
		}
	}
	return list
}
