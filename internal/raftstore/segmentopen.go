package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// openLog reads a log from its first byte to its last. The error matches ErrDamaged if a
// byte is not as it was written. A last batch that a crash has cut short is dropped, and is
// gone from the disk when openLog returns. When openLog fails, nothing stays open.
//
// noted is the newest segment that the log must have.
func openLog(c segmentConfig, noted uint64) (_ *segmentLog, err error) {
	l := &segmentLog{segmentConfig: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := l.openFiles(noted); err != nil {
		return nil, err
	}
	newest, err := l.read(l.tail(), true)
	if err != nil {
		return nil, err
	}
	dead, err := l.front(newest)
	if err != nil {
		return nil, err
	}
	if err := l.replay(dead, newest); err != nil {
		return nil, err
	}
	l.end, l.zeroed = newest.end, newest.end.end
	if newest.dirty > 0 {
		if _, err := l.tail().file.WriteAt(make([]byte, newest.dirty-l.end.end), l.end.end); err != nil {
			return nil, err
		}
	}
	// A process that was killed between a write and its flush has left bytes that are here
	// and not on the disk. From now on they count as stored. An unflushed log is flushed too:
	// the kernel tells here of a write that failed since.
	if err := l.writeAgain(newest); err != nil {
		return nil, err
	}
	if err := l.flush(); err != nil {
		return nil, err
	}
	for ; dead > 0; dead-- { // after the flush: their deletion is on the disk
		if err := l.dropOldest(); err != nil {
			return nil, err
		}
	}
	if newest.info.number > noted {
		if err := l.note(newest.info.number); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// openFiles opens all segments that are there, and removes a segment that was never in use.
func (l *segmentLog) openFiles(noted uint64) error {
	names, err := l.disk.names()
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, name := range names {
		if number, ok := segmentNumber(name); ok {
			numbers = append(numbers, number)
		} else if strings.HasSuffix(name, newSuffix) {
			if err := l.disk.remove(name); err != nil {
				return err
			}
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		file, err := l.disk.open(segmentName(number))
		if err != nil {
			return err
		}
		l.segments = append(l.segments, &segment{number: number, file: file})
	}
	if len(numbers) == 0 || l.tail().number < noted {
		return fmt.Errorf("%w: %s is not there", ErrDamaged, l.disk.path(segmentName(noted)))
	}
	return nil
}

// writeAgain writes the bytes that may not be on the disk once more, as they are. The process
// before may have ended because a flush failed. The kernel then still shows the bytes, and a
// further flush succeeds without writing them. Such bytes are in the newest segment alone,
// from its last batch on, because each batch begins after the flush of the batch before.
// Behind the batches they are the zeros over a batch that a crash has cut short: its remains
// on the disk would damage the log once a further segment begins. Of an unflushed log any
// bytes can be such bytes.
func (l *segmentLog) writeAgain(newest *segmentRead) error {
	if l.all {
		for _, s := range l.segments[:len(l.segments)-1] {
			if err := writeAgain(s.file, 0, s.size, false); err != nil {
				return err
			}
		}
		return writeAgain(l.tail().file, 0, l.tail().size, true)
	}
	from := l.end.end
	if n := len(newest.batches); n > 0 {
		from = newest.batches[n-1].at - batchHead
	}
	return writeAgain(l.tail().file, from, l.tail().size, true)
}

// writeAgain reads the bytes of a file between two places and writes them where they are.
// Parts of nothing but zeros are left out unless zeros is set.
func writeAgain(file interface {
	io.ReaderAt
	io.WriterAt
}, from, to int64, zeros bool) error {
	for from < to {
		b := make([]byte, min(to-from, keptBuffer))
		if _, err := file.ReadAt(b, from); err != nil {
			return err
		}
		if zeros || !allZero(b) {
			if _, err := file.WriteAt(b, from); err != nil {
				return err
			}
		}
		from += int64(len(b))
	}
	return nil
}

// front counts the segments in front of the oldest one in use: a crash came before their
// removal. The newest segment knows the oldest. From there on no segment may be missing.
func (l *segmentLog) front(newest *segmentRead) (dead int, err error) {
	oldest := newest.info.oldest
	for _, b := range newest.batches {
		if b.kind == batchDeletion && len(b.payload) == deletionLen {
			oldest = max(oldest, binary.BigEndian.Uint64(b.payload[16:]))
		}
	}
	for l.segments[dead].number < oldest && dead < len(l.segments)-1 {
		dead++
	}
	for i, s := range l.segments[dead:] {
		if s.number != oldest+uint64(i) {
			return 0, fmt.Errorf("%w: %s is not there", ErrDamaged, l.disk.path(segmentName(oldest+uint64(i))))
		}
	}
	return dead, nil
}

// replay reads the segments behind the dead ones and does their changes again.
func (l *segmentLog) replay(dead int, newest *segmentRead) error {
	for i, s := range l.segments[dead:] {
		r := newest
		if s != l.tail() {
			var err error
			if r, err = l.read(s, false); err != nil {
				return err
			}
		}
		if i > 0 && (l.end.end != r.info.end || l.end.last != r.info.last) {
			return fmt.Errorf("%w: %s ends at byte %d, and not with the last batch at byte %d",
				ErrDamaged, l.disk.path(segmentName(s.number-1)), l.end.end, r.info.end)
		}
		if err := l.take(s, r); err != nil {
			return fmt.Errorf("%s: %w", l.disk.path(segmentName(s.number)), err)
		}
		l.end = r.end
	}
	return nil
}

// segmentRead is a segment as read.
type segmentRead struct {
	info    segmentInfo
	batches []batch
	end     chain
	dirty   int64 // see readBatches
}

// read reads the whole segment.
func (l *segmentLog) read(s *segment, newest bool) (r *segmentRead, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", l.disk.path(segmentName(s.number)), err)
		}
	}()
	if s.size, err = s.file.Size(); err != nil {
		return nil, err
	}
	head := make([]byte, min(s.size, segmentHead))
	if _, err := s.file.ReadAt(head, 0); err != nil {
		return nil, err
	}
	r = &segmentRead{}
	if r.info, err = decodeSegment(head, s.size); err != nil {
		return nil, err
	}
	data := make([]byte, s.size)
	if _, err := s.file.ReadAt(data, 0); err != nil {
		return nil, err
	}
	if r.info.id != l.id || r.info.number != s.number || r.info.oldest > s.number {
		return nil, fmt.Errorf("%w: is segment %d of log %x", ErrDamaged, r.info.number, r.info.id)
	}
	if r.batches, r.end, r.dirty, err = readBatches(data); err != nil {
		return nil, err
	}
	if r.dirty > 0 && !newest {
		return nil, fmt.Errorf("%w: the batch at byte %d has lost bytes, and a segment was begun later", ErrDamaged, r.end.end)
	}
	return r, nil
}

// take does the changes of a segment again.
func (l *segmentLog) take(s *segment, r *segmentRead) error {
	for _, b := range r.batches {
		switch b.kind {
		case batchEntries:
			for at := 0; at < len(b.payload); {
				n := entryLen(b.payload[at:])
				if n == 0 {
					return fmt.Errorf("%w: no entry at byte %d", ErrDamaged, b.at+int64(at))
				}
				l.insert(place{entryIndex(b.payload[at:]), s, b.at + int64(at), n})
				at += n
			}
		case batchDeletion:
			if len(b.payload) != deletionLen {
				return fmt.Errorf("%w: no deletion at byte %d", ErrDamaged, b.at)
			}
			from, to := l.between(binary.BigEndian.Uint64(b.payload), binary.BigEndian.Uint64(b.payload[8:]))
			l.cut(from, to)
		default:
			return fmt.Errorf("%w: the batch at byte %d is of the unknown kind %d", ErrDamaged, b.at, b.kind)
		}
	}
	return nil
}
