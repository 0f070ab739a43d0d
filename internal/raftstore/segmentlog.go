package raftstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	firstSegment  = 256 << 10 // length of a log's first file; each further one is twice as long
	segmentLen    = 8 << 20   // at most, unless a batch needs more
	zeroAhead     = 256 << 10 // bytes that are written as zeros in front of the batches
	keptBuffer    = 1 << 20
	segmentSuffix = ".segment"
	newSuffix     = ".new" // of a segment that is not in use yet
)

// segmentLog is a log in segments. A single caller writes at a time; anybody reads.
//
// All changes are batches, and reading the segments in order does them again. A deletion
// says which segments stay: the files in front are removed afterwards, the oldest first.
// So neither a crash nor a lost removal brings an entry back.
type segmentLog struct {
	segmentConfig

	// Only the writer uses these, and open.
	segments []*segment // the oldest first, and the last takes the batches
	end      chain      // in the last segment
	zeroed   int64      // in the last segment, zeros were written up to here
	buffer   []byte

	mu     sync.RWMutex // never held while the disk works
	places []place      // of the entries, by rising index
}

// segmentConfig says where and how a log is kept.
type segmentConfig struct {
	disk  logDisk
	id    logID
	sync  bool                      // flush each batch
	first int64                     // length of the first segment
	limit int64                     // length of a segment, at most
	note  func(number uint64) error // makes durable that the log has a segment, before its first batch
	all   bool                      // an earlier process may have left any bytes unflushed
}

// segment is a file of the log.
type segment struct {
	number uint64
	file   logFile
	size   int64
	live   int // entries that are not deleted
}

// place tells where an entry is.
type place struct {
	index   uint64
	segment *segment
	at      int64
	length  int
}

// newLog makes an empty log in place of all that the directory has.
func newLog(c segmentConfig) (*segmentLog, error) {
	disk := c.disk
	names, err := disk.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := segmentNumber(name); ok || strings.HasSuffix(name, newSuffix) {
			if err := disk.remove(name); err != nil {
				return nil, err
			}
		}
	}
	if err := disk.syncNames(); err != nil {
		return nil, err
	}
	l := &segmentLog{segmentConfig: c}
	if err := l.extend(0); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func segmentName(number uint64) string { return strconv.FormatUint(number, 10) + segmentSuffix }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil && segmentName(number) == name
}

func (l *segmentLog) tail() *segment { return l.segments[len(l.segments)-1] }

// find returns the position of the entry at index, or the position at which it would be.
func (l *segmentLog) find(index uint64) (int, bool) {
	if n := len(l.places); n == 0 || l.places[n-1].index < index {
		return n, false
	}
	return slices.BinarySearchFunc(l.places, index, func(p place, index uint64) int { return cmp.Compare(p.index, index) })
}

// between returns the positions of the entries from min to max.
func (l *segmentLog) between(min, max uint64) (from, to int) {
	from, _ = l.find(min)
	to, ok := l.find(max)
	if ok {
		to++
	}
	return from, to
}

// insert adds an entry, in place of one with the same index.
func (l *segmentLog) insert(p place) {
	p.segment.live++
	if at, ok := l.find(p.index); ok {
		l.places[at].segment.live--
		l.places[at] = p
	} else {
		l.places = slices.Insert(l.places, at, p)
	}
}

// cut forgets the entries at the positions from to to.
func (l *segmentLog) cut(from, to int) {
	if from >= to {
		return
	}
	for _, p := range l.places[from:to] {
		p.segment.live--
	}
	if from > 0 {
		l.places = slices.Delete(l.places, from, to)
		return
	}
	clear(l.places[:to]) // a compaction moves no place
	l.places = l.places[to:]
}

func (l *segmentLog) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.places) == 0 {
		return 0, nil
	}
	return l.places[0].index, nil
}

func (l *segmentLog) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.places) == 0 {
		return 0, nil
	}
	return l.places[len(l.places)-1].index, nil
}

// GetLog reads the entry from the file, and compares its checksum.
func (l *segmentLog) GetLog(index uint64, log *raft.Log) error {
	var before place
	for {
		l.mu.RLock()
		at, ok := l.find(index)
		if !ok {
			l.mu.RUnlock()
			return raft.ErrLogNotFound
		}
		p := l.places[at]
		l.mu.RUnlock()
		b := make([]byte, p.length)
		_, err := p.segment.file.ReadAt(b, p.at)
		if err == nil {
			err = decodeEntry(b, log)
		}
		switch {
		case err == nil && log.Index == index:
			return nil
		case p == before: // else a compaction may have taken the file away meanwhile
			if err == nil || errors.Is(err, errNoEntry) {
				err = ErrDamaged
			}
			return fmt.Errorf("entry %d: %w", index, err)
		}
		before = p
	}
}

// StoreLogs writes a batch and flushes it.
func (l *segmentLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	b := l.batch()
	offsets := make([]int, len(logs)+1)
	for i, log := range logs {
		offsets[i] = len(b)
		b = appendEntry(b, log)
	}
	offsets[len(logs)] = len(b)
	at, err := l.write(batchEntries, b)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, log := range logs {
		l.insert(place{log.Index, l.tail(), at + int64(offsets[i]), offsets[i+1] - offsets[i]})
	}
	return nil
}

// DeleteRange writes a batch and flushes it, and removes the segments in front in which no
// entry is left.
func (l *segmentLog) DeleteRange(min, max uint64) error {
	// Only the writer changes the places.
	from, to := l.between(min, max)
	if from >= to {
		return nil
	}
	if err := l.room(batchHead + deletionLen + 1); err != nil {
		return err
	}
	deleted := make(map[*segment]int)
	for _, p := range l.places[from:to] {
		deleted[p.segment]++
	}
	dead := 0
	for dead < len(l.segments)-1 && l.segments[dead].live == deleted[l.segments[dead]] {
		dead++
	}
	b := l.batch()
	for _, n := range []uint64{min, max, l.segments[dead].number} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	if _, err := l.write(batchDeletion, b); err != nil {
		return err
	}
	l.mu.Lock()
	l.cut(from, to)
	l.mu.Unlock()
	for ; dead > 0; dead-- {
		if err := l.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// dropOldest removes the oldest segment.
func (l *segmentLog) dropOldest() error {
	s := l.segments[0]
	l.segments = l.segments[1:]
	return errors.Join(s.file.Close(), l.disk.remove(segmentName(s.number)))
}

// batch returns the buffer for the next batch, with room for its head.
func (l *segmentLog) batch() []byte {
	if cap(l.buffer) > keptBuffer {
		l.buffer = nil
	}
	return append(l.buffer[:0], make([]byte, batchHead)...)
}

// write seals and writes a batch, and returns where it is in the file of the last segment.
func (l *segmentLog) write(kind byte, b []byte) (at int64, err error) {
	if err := l.room(int64(len(b)) + 1); err != nil {
		return 0, err
	}
	b, next := l.end.seal(kind, b)
	l.buffer = b
	file := l.tail().file
	// The first write to a block changes more than the block: the file system notes that
	// the block is no longer empty, and the flush waits for that too. One such flush for
	// many batches is cheaper than one for each.
	if next.end > l.zeroed {
		l.zeroed = min(l.tail().size, next.end+zeroAhead)
		if next.end < l.zeroed {
			if _, err := file.WriteAt(make([]byte, l.zeroed-next.end), next.end); err != nil {
				return 0, err
			}
		}
	}
	at = l.end.end
	if _, err := file.WriteAt(b, at); err != nil {
		return 0, err
	}
	if l.sync {
		if err := file.Sync(); err != nil {
			return 0, err
		}
	}
	l.end = next
	return at, nil
}

// room begins another segment if the last one has no room for so many bytes.
func (l *segmentLog) room(n int64) error {
	if l.end.end+n <= l.tail().size {
		return nil
	}
	return l.extend(n)
}

// extend begins a segment with room for n bytes. The name and the head of the segment are
// durable when extend returns.
func (l *segmentLog) extend(n int64) error {
	info := segmentInfo{id: l.id, number: 1, oldest: 1, size: l.first}
	if len(l.segments) > 0 {
		info.number, info.oldest = l.tail().number+1, l.segments[0].number
		info.end, info.last, info.size = l.end.end, l.end.last, min(2*l.tail().size, l.limit)
	}
	info.size = max(info.size, segmentHead+aligned(n))
	if info.size > maxSegment {
		return fmt.Errorf("cluster: a batch of %d bytes exceeds %d", n, maxSegment)
	}
	name := segmentName(info.number)
	file, err := l.disk.create(name+newSuffix, info.size)
	if err != nil {
		return err
	}
	head := info.encode()
	_, err = file.WriteAt(head, 0)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.disk.rename(name+newSuffix, name)
	}
	if err == nil {
		err = l.disk.syncNames()
	}
	if err == nil {
		err = l.note(info.number)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.segments = append(l.segments, &segment{number: info.number, file: file, size: info.size})
	l.end, l.zeroed = newChain(head), 0
	return nil
}

// flush makes everything written durable.
func (l *segmentLog) flush() error {
	for _, s := range l.segments {
		if err := s.file.Sync(); err != nil {
			return err
		}
	}
	return l.disk.syncNames()
}

// Close closes the files.
func (l *segmentLog) Close() error {
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	l.segments = nil
	return errors.Join(errs...)
}
