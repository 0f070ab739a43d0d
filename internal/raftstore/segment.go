package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// A segment is a file of a fixed length, allocated and full of zeros before its first
// use, and never used again for another segment. It is:
//
//   - a head of 64 bytes: magic, the log's random ID, the segment's number and length, the
//     oldest segment in use when this one was made, where the segment before ends and with
//     which batch, and the CRC32C of all this
//   - batches, each at a multiple of 32 bytes
//   - zeros
//
// A batch is a single write, followed by a single flush: entries, or the deletion of a
// range. It has a head of 32 bytes:
//
//	 0  kind, and three zeros
//	 4  length of the payload
//	 8  number of the batch in the segment, from 1
//	16  CRC32C of the head of the batch before, or of the segment
//	20  CRC32C of the payload
//	24  CRC32C of the bytes so far, from the sum of the segment and the batch's place on
//	28  a mark without zeros
//
// Its payload ends with a byte that is not zero. So bytes of another segment, of another
// log or of another place are no batch here, even if the file system shows them.
//
// # The end of a log
//
// A crash cuts short the last batch alone, since each batch begins after the flush of the
// batch before. A disk writes a sector whole or not at all, and a killed process leaves a
// batch's beginning, so what is missing is zeros: the end of the batch, or all of its bytes
// in a sector. readBatches drops a last batch only if it lacks bytes in this way. No flush
// of such a batch can have returned, unless the disk lies. A batch whose bytes are there
// and do not match their sums is damage, and so is each fault that a batch follows.
//
// An entry with a sector of zeros weakens the second sign: a bit that flips in this entry
// while it is the last one looks like a crash.
const (
	segmentMagic  = "wmlog\x001\n"
	segmentHead   = 64
	batchHead     = 32
	batchAlign    = 32 // divides sectorLen, so that a head lies in one sector
	sectorLen     = 512
	entryHead     = 8 + 8 + 8 + 8 + 4 + 1 + 4
	deletionLen   = 3 * 8
	maxSegment    = 1 << 30 // bytes: far above the largest batch, 64 entries of 2 MiB
	endMark       = 0xa5
	batchEntries  = 1
	batchDeletion = 2
)

var batchMark = [4]byte{0xa5, 0x5a, 0xc3, endMark}

// logID tells the segments of a log from the segments of any other.
type logID [16]byte

// segmentInfo is the head of a segment.
type segmentInfo struct {
	id     logID
	number uint64
	size   int64  // of the file
	oldest uint64 // the first segment in use when this one was made
	end    int64  // of the last batch in the segment before
	last   uint32 // the sum of that batch's head
}

func (s segmentInfo) encode() []byte {
	b := append(make([]byte, 0, segmentHead), segmentMagic...)
	b = append(b, s.id[:]...)
	for _, n := range []uint64{s.number, uint64(s.size), s.oldest, uint64(s.end)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, s.last)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// sum is the CRC32C in an encoded head: the beginning of the segment's chain.
func segmentSum(head []byte) uint32 { return binary.BigEndian.Uint32(head[segmentHead-4:]) }

// decodeSegment reads the head of a segment. data are the first bytes of a file of the given
// size. If there is no error, the file may be read whole into memory: a file of another
// size than its head says is damaged, however large a hole in it makes it look.
func decodeSegment(data []byte, size int64) (s segmentInfo, err error) {
	switch {
	case len(data) < segmentHead:
		return s, fmt.Errorf("%w: cut to %d bytes", ErrDamaged, len(data))
	case string(data[:len(segmentMagic)]) != segmentMagic:
		return s, fmt.Errorf("%w: not a segment of a log", ErrDamaged)
	case crc32.Checksum(data[:segmentHead-4], castagnoli) != segmentSum(data):
		return s, fmt.Errorf("%w: its head does not match its checksum", ErrDamaged)
	}
	at := copy(s.id[:], data[len(segmentMagic):]) + len(segmentMagic)
	next := func() uint64 {
		at += 8
		return binary.BigEndian.Uint64(data[at-8:])
	}
	s.number, s.size, s.oldest, s.end = next(), int64(next()), next(), int64(next())
	s.last = binary.BigEndian.Uint32(data[at:])
	if s.size != size || size > maxSegment {
		return s, fmt.Errorf("%w: %d bytes of %d", ErrDamaged, size, s.size)
	}
	return s, nil
}

// aligned returns the first place for a batch from n on.
func aligned(n int64) int64 { return (n + batchAlign - 1) &^ (batchAlign - 1) }

// chain is a place between two batches of a segment: a batch that follows names it.
type chain struct {
	seed   uint32 // the sum of the segment's head
	number uint64 // of the batch before; 0: there is none
	last   uint32 // the sum of its head
	end    int64  // where it ends, aligned
}

func newChain(head []byte) chain {
	sum := segmentSum(head)
	return chain{seed: sum, last: sum, end: segmentHead}
}

// headSum is the sum over the head of a batch at a place.
func (c chain) headSum(head []byte, at int64) uint32 {
	var from [12]byte
	binary.BigEndian.PutUint32(from[:], c.seed)
	binary.BigEndian.PutUint64(from[4:], uint64(at))
	return crc32.Update(crc32.Checksum(from[:], castagnoli), castagnoli, head[:24])
}

// seal completes batch, whose payload begins behind batchHead bytes, as the next batch,
// and returns it with the place behind it.
func (c chain) seal(kind byte, batch []byte) ([]byte, chain) {
	batch = append(batch, endMark)
	payload := batch[batchHead:]
	head := batch[:batchHead]
	clear(head)
	head[0] = kind
	binary.BigEndian.PutUint32(head[4:], uint32(len(payload)))
	binary.BigEndian.PutUint64(head[8:], c.number+1)
	binary.BigEndian.PutUint32(head[16:], c.last)
	binary.BigEndian.PutUint32(head[20:], crc32.Checksum(payload, castagnoli))
	sum := c.headSum(head, c.end)
	binary.BigEndian.PutUint32(head[24:], sum)
	copy(head[28:], batchMark[:])
	return batch, chain{c.seed, c.number + 1, sum, aligned(c.end + int64(len(batch)))}
}

// isHead reports whether the bytes of a segment have the head of a batch at a place,
// whichever batch is in front of it.
func (c chain) isHead(data []byte, at int64) bool {
	if int64(len(data))-at < batchHead {
		return false
	}
	head := data[at : at+batchHead]
	return [4]byte(head[28:]) == batchMark && c.headSum(head, at) == binary.BigEndian.Uint32(head[24:])
}

// batch is a batch as read.
type batch struct {
	kind    byte
	at      int64 // of the payload, in the file
	payload []byte
}

// readBatches reads the batches in the bytes of a segment, up to the first place without
// a batch. dirty is where the bytes end that are not zero, if a last batch was cut short
// and dropped; else 0. The error matches ErrDamaged if the bytes are neither.
func readBatches(data []byte) (batches []batch, end chain, dirty int64, err error) {
	c := newChain(data)
	for {
		at := c.end
		if int64(len(data))-at < batchHead {
			if !allZero(data[min(at, int64(len(data))):]) {
				return nil, c, 0, fmt.Errorf("%w: bytes behind its last batch", ErrDamaged)
			}
			return batches, c, 0, nil
		}
		head := data[at : at+batchHead]
		whole := c.isHead(data, at)
		if !whole && head[batchHead-1] != 0 {
			return nil, c, 0, fmt.Errorf("%w: the head of batch %d, at byte %d, does not match its checksum", ErrDamaged, c.number+1, at)
		}
		if !whole {
			dirty, err := c.cut(data, at)
			return batches, c, dirty, err
		}
		length := int64(binary.BigEndian.Uint32(head[4:]))
		switch {
		case binary.BigEndian.Uint64(head[8:]) != c.number+1 || binary.BigEndian.Uint32(head[16:]) != c.last:
			return nil, c, 0, fmt.Errorf("%w: the batch at byte %d follows another batch than number %d", ErrDamaged, at, c.number)
		case length < 1 || length > int64(len(data))-at-batchHead:
			return nil, c, 0, fmt.Errorf("%w: batch %d, at byte %d, has %d bytes", ErrDamaged, c.number+1, at, length)
		}
		begin := at + batchHead
		payload := data[begin : begin+length]
		next := chain{c.seed, c.number + 1, binary.BigEndian.Uint32(head[24:]), aligned(begin + length)}
		if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(head[20:]) {
			if !cutShort(payload, begin) {
				return nil, c, 0, fmt.Errorf("%w: batch %d, at byte %d, does not match its checksum", ErrDamaged, c.number+1, at)
			}
			dirty, err := c.cut(data, at)
			if err == nil && dirty > begin+length {
				err = fmt.Errorf("%w: batch %d, at byte %d, has lost bytes, and there are bytes behind it", ErrDamaged, c.number+1, at)
			}
			return batches, c, dirty, err
		}
		if padding := data[begin+length : min(next.end, int64(len(data)))]; !allZero(padding) {
			return nil, c, 0, fmt.Errorf("%w: bytes behind batch %d", ErrDamaged, next.number)
		}
		batches = append(batches, batch{head[0], begin, payload[:length-1]})
		c = next
	}
}

// cut ends a segment at a place from which bytes are missing. It fails if a batch follows:
// that batch was begun after the flush of the missing bytes.
func (c chain) cut(data []byte, at int64) (dirty int64, err error) {
	dirty = int64(len(bytes.TrimRight(data, "\x00")))
	if dirty <= at {
		return 0, nil
	}
	for later := at + batchAlign; later < dirty; later += batchAlign {
		if c.isHead(data, later) {
			return 0, fmt.Errorf("%w: batch %d, at byte %d, has lost bytes, and the batch at byte %d was written later",
				ErrDamaged, c.number+1, at, later)
		}
	}
	return dirty, nil
}

// cutShort reports whether the bytes of a payload that begins at a place of the file are
// missing as a crash makes them miss.
func cutShort(payload []byte, at int64) bool {
	if payload[len(payload)-1] == 0 {
		return true
	}
	for len(payload) > 0 {
		n := min(int64(len(payload)), sectorLen-at%sectorLen)
		if allZero(payload[:n]) {
			return true
		}
		payload, at = payload[n:], at+n
	}
	return false
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// appendEntry appends an entry to a payload.
func appendEntry(b []byte, log *raft.Log) []byte {
	from := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, log.Index)
	b = binary.BigEndian.AppendUint64(b, log.Term)
	b = binary.BigEndian.AppendUint64(b, uint64(log.AppendedAt.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(log.AppendedAt.Nanosecond()))
	b = append(b, byte(log.Type))
	b = binary.BigEndian.AppendUint32(b, uint32(len(log.Extensions)))
	b = append(b, log.Extensions...)
	b = append(b, log.Data...)
	binary.BigEndian.PutUint32(b[from:], uint32(len(b)-from))
	binary.BigEndian.PutUint32(b[from+4:], crc32.Checksum(b[from+8:], castagnoli))
	return b
}

// entryLen returns the length of the entry at the beginning of b, or 0 if b does not begin
// with one.
func entryLen(b []byte) int {
	if len(b) < entryHead {
		return 0
	}
	n := binary.BigEndian.Uint32(b)
	if n < entryHead || uint64(n) > uint64(len(b)) || uint64(binary.BigEndian.Uint32(b[37:])) > uint64(n-entryHead) {
		return 0
	}
	return int(n)
}

func entryIndex(b []byte) uint64 { return binary.BigEndian.Uint64(b[8:]) }

var errNoEntry = errors.New("not an entry")

// decodeEntry reads the entry that b is. The entry shares the memory of b.
func decodeEntry(b []byte, log *raft.Log) error {
	if n := entryLen(b); n == 0 || n != len(b) || crc32.Checksum(b[8:], castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return errNoEntry
	}
	*log = raft.Log{
		Index:      entryIndex(b),
		Term:       binary.BigEndian.Uint64(b[16:]),
		AppendedAt: time.Unix(int64(binary.BigEndian.Uint64(b[24:])), int64(binary.BigEndian.Uint32(b[32:]))).UTC(),
		Type:       raft.LogType(b[36]),
	}
	extensions := entryHead + int(binary.BigEndian.Uint32(b[37:]))
	if extensions > entryHead {
		log.Extensions = b[entryHead:extensions:extensions]
	}
	log.Data = b[extensions:]
	return nil
}
