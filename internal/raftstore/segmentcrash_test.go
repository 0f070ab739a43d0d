package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// memoryDisk is a logDisk that loses what is not flushed when it crashes.
type memoryDisk struct {
	files   map[string]*memoryFile // as a process sees them
	durable map[string]*memoryFile // names that are flushed
	calls   int                    // changes and flushes
	fail    map[int]error          // of the call with the number
	dead    int                    // from the call with this number on nothing works; 0: never
	short   bool                   // the last write of a dead disk gets a part through
}

type memoryFile struct {
	disk    *memoryDisk
	data    []byte // as a process sees it
	durable []byte
	writes  []memoryWrite // since the last flush
}

type memoryWrite struct {
	at   int64
	data []byte
}

var errCrashed = errors.New("crashed")

func newMemoryDisk() *memoryDisk {
	return &memoryDisk{files: map[string]*memoryFile{}, durable: map[string]*memoryFile{}, fail: map[int]error{}}
}

func (d *memoryDisk) call() error {
	d.calls++
	if d.dead > 0 && d.calls >= d.dead {
		return errCrashed
	}
	return d.fail[d.calls]
}

func (d *memoryDisk) path(name string) string { return name }

func (d *memoryDisk) names() ([]string, error) { return slices.Sorted(maps.Keys(d.files)), nil }

func (d *memoryDisk) create(name string, size int64) (logFile, error) {
	if _, ok := d.files[name]; ok {
		return nil, fs.ErrExist
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	f := &memoryFile{disk: d, data: make([]byte, size), durable: make([]byte, size)}
	d.files[name] = f
	return f, nil
}

func (d *memoryDisk) open(name string) (logFile, error) {
	if f, ok := d.files[name]; ok {
		return f, nil
	}
	return nil, fs.ErrNotExist
}

func (d *memoryDisk) rename(from, to string) error {
	if err := d.call(); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *memoryDisk) remove(name string) error {
	if err := d.call(); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

func (d *memoryDisk) syncNames() error {
	if err := d.call(); err != nil {
		return err
	}
	d.durable = maps.Clone(d.files)
	return nil
}

func (f *memoryFile) Size() (int64, error) { return int64(len(f.data)), nil }
func (f *memoryFile) Close() error         { return nil }

func (f *memoryFile) ReadAt(p []byte, at int64) (int, error) {
	if n := copy(p, f.data[at:]); n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

func (f *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	err := f.disk.call()
	if err != nil && !(f.disk.short && f.disk.calls == f.disk.dead) && !errors.Is(err, io.ErrShortWrite) {
		return 0, err
	}
	if at+int64(len(p)) > int64(len(f.data)) {
		return 0, errors.New("a write behind the end of a segment")
	}
	if err != nil {
		p = p[:len(p)/2]
	}
	copy(f.data[at:], p)
	f.writes = append(f.writes, memoryWrite{at, bytes.Clone(p)})
	return len(p), err
}

// Sync makes the writes durable. A flush that fails tells once, as kernels do: the next one
// does not try the same writes again, although the process still reads them.
func (f *memoryFile) Sync() error {
	if err := f.disk.call(); err != nil {
		if err != errCrashed {
			f.writes = nil
		}
		return err
	}
	for _, w := range f.writes {
		copy(f.durable[w.at:], w.data)
	}
	f.writes = nil
	return nil
}

// kill returns the disk after the end of the process.
func (d *memoryDisk) kill() *memoryDisk {
	after := newMemoryDisk()
	for name, f := range d.files {
		after.files[name] = &memoryFile{disk: after, data: bytes.Clone(f.data), durable: bytes.Clone(f.durable), writes: slices.Clone(f.writes)}
	}
	after.durable = maps.Clone(after.files)
	return after
}

// crash returns the disk after the end of the host: of what was not flushed, each sector
// and each name is old or new.
func (d *memoryDisk) crash(r *rand.Rand) *memoryDisk {
	after := newMemoryDisk()
	names := maps.Clone(d.durable)
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[name]
		if r.IntN(2) == 0 {
			names[name] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.durable)) {
		if d.files[name] == nil && r.IntN(2) == 0 {
			delete(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := names[name]
		data := bytes.Clone(f.durable)
		for _, w := range f.writes {
			for from := int64(0); from < int64(len(w.data)); {
				to := min(from+sectorLen-(w.at+from)%sectorLen, int64(len(w.data)))
				if r.IntN(2) == 0 {
					copy(data[w.at+from:], w.data[from:to])
				}
				from = to
			}
		}
		after.files[name] = &memoryFile{disk: after, data: data, durable: bytes.Clone(data)}
	}
	after.durable = maps.Clone(after.files)
	return after
}

// testLog is a log on a memoryDisk, with what its bolt file would note.
type testLog struct {
	*segmentLog
	disk  *memoryDisk
	noted uint64
	all   bool // segmentConfig.all
}

func (l *testLog) config(limit int64) segmentConfig {
	return segmentConfig{disk: l.disk, id: logID{7}, sync: true, first: limit, limit: limit, all: l.all, note: func(n uint64) error {
		if err := l.disk.call(); err != nil {
			return err
		}
		l.noted = n
		return nil
	}}
}

func newTestLog(t testing.TB, limit int64) *testLog {
	t.Helper()
	l := &testLog{disk: newMemoryDisk()}
	var err error
	l.segmentLog, err = newLog(l.config(limit))
	must(t, err)
	return l
}

// reopen opens the log on another disk, as a new process does.
func (l *testLog) reopen(disk *memoryDisk, limit int64) error {
	l.disk = disk
	var err error
	if l.noted == 0 {
		l.segmentLog, err = newLog(l.config(limit))
	} else {
		l.segmentLog, err = openLog(l.config(limit), l.noted)
	}
	return err
}

// contents reads the whole log by its methods.
func contents(t testing.TB, l *segmentLog) map[uint64]string {
	t.Helper()
	got := map[uint64]string{}
	for _, p := range l.places {
		var log raft.Log
		if err := l.GetLog(p.index, &log); err != nil {
			t.Fatal(err)
		}
		got[log.Index] = fmt.Sprint(log.Term, " ", string(log.Data))
	}
	return got
}

// At each disk call of a long run of random changes, the process is killed or the host
// crashes, some calls later again, while the log is opened. The log then has the changes
// that were acknowledged, and the one under way wholly or not at all.
func TestACrashLosesNothingAcknowledged(t *testing.T) {
	for seed := range testrounds.Rounds(200, 2000) {
		r := rand.New(rand.NewPCG(9, uint64(seed)))
		limit := int64(600 + r.IntN(3000))
		l := newTestLog(t, limit)
		want := map[uint64]string{}
		for range 8 {
			l.disk.dead, l.disk.short = l.disk.calls+1+r.IntN(40), r.IntN(2) == 0
			before := maps.Clone(want)
			var err error
			for err == nil {
				before = maps.Clone(want)
				first, _ := l.FirstIndex()
				last, _ := l.LastIndex()
				switch n := uint64(r.IntN(6)); {
				case n == 0 && first > 0: // a compaction
					to := first + uint64(r.IntN(int(last-first+1)))
					for i := first; i <= to; i++ {
						delete(want, i)
					}
					err = l.DeleteRange(first, to)
				case n == 1 && first > 0: // a conflict
					from := first + uint64(r.IntN(int(last-first+1)))
					for i := from; i <= last; i++ {
						delete(want, i)
					}
					err = l.DeleteRange(from, last)
				default:
					var logs []*raft.Log
					for i := range 1 + uint64(r.IntN(4)) {
						logs = append(logs, entry(last+1+i, uint64(1+r.IntN(9)), string(bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(700)))))
						want[last+1+i] = fmt.Sprint(logs[i].Term, " ", string(logs[i].Data))
					}
					err = l.StoreLogs(logs)
				}
			}
			if !errors.Is(err, errCrashed) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for again := true; again; {
				disk := l.disk.kill()
				if r.IntN(2) == 0 {
					disk = l.disk.crash(r)
				}
				if again = r.IntN(3) == 0; again {
					disk.dead = 1 + r.IntN(6)
				}
				err := l.reopen(disk, limit)
				again = again && errors.Is(err, errCrashed)
				if err != nil && !again {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			l.disk.dead = 0
			got := contents(t, l.segmentLog)
			if !maps.Equal(got, want) && !maps.Equal(got, before) {
				t.Fatalf("seed %d: the log has %d entries, want %d or %d:\n%v\n%v", seed, len(got), len(want), len(before), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
			want = got
		}
	}
}

// A flush fails, and the process ends. The next process finds the batch, counts it as
// stored, and keeps it when the host crashes.
func TestAFailedFlushIsNotTrustedLater(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(3, seed))
		l := newTestLog(t, 4<<10)
		must(t, l.StoreLogs(entries(1, 5, 1)))
		l.disk.fail[l.disk.calls+2+r.IntN(2)] = syscall.EIO // with a part in a block of zeros, or without
		for i := uint64(6); ; i++ {
			if err := l.StoreLogs(entries(i, i, 1)); err != nil {
				break
			}
		}
		must(t, l.reopen(l.disk.kill(), 4<<10))
		want := contents(t, l.segmentLog)
		must(t, l.reopen(l.disk.crash(r), 4<<10))
		if got := contents(t, l.segmentLog); !maps.Equal(got, want) {
			t.Fatalf("seed %d: %d entries, and %d before the crash", seed, len(got), len(want))
		}
	}
}

// sampleLog returns a log in one segment, whose last batch begins at last and ends at end.
func sampleLog(t testing.TB) (l *testLog, data []byte, last, end int64) {
	l = newTestLog(t, 8<<10)
	must(t, l.StoreLogs(entries(1, 5, 1)))
	must(t, l.DeleteRange(1, 2))
	must(t, l.StoreLogs(entries(6, 9, 1)))
	last = l.end.end
	logs := entries(10, 12, 2)
	logs[1].Data = bytes.Repeat([]byte("long "), 300)
	must(t, l.StoreLogs(logs))
	data = l.disk.files[segmentName(1)].data
	return l, data, last, int64(len(bytes.TrimRight(data, "\x00")))
}

// withData opens a log on other bytes of its only segment.
func (l *testLog) withData(data []byte) (*testLog, error) {
	other := &testLog{disk: newMemoryDisk(), noted: 1}
	f := &memoryFile{disk: other.disk, data: bytes.Clone(data), durable: bytes.Clone(data)}
	other.disk.files[segmentName(1)], other.disk.durable[segmentName(1)] = f, f
	return other, other.reopen(other.disk, 8<<10)
}

// What a crash can leave of the last batch is dropped, for good.
func TestATornTailIsDroppedAtEveryByte(t *testing.T) {
	l, data, last, end := sampleLog(t)
	expect := func(what string, torn []byte) {
		t.Helper()
		got, err := l.withData(torn)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n, _ := got.LastIndex(); n != 9 {
			t.Fatalf("%s: last index %d", what, n)
		}
		if f := got.disk.files[segmentName(1)]; !allZero(f.durable[last:]) {
			t.Fatalf("%s: bytes of the torn batch are left", what)
		}
		must(t, got.StoreLogs(entries(10, 11, 3)))
		must(t, got.reopen(got.disk.kill(), 8<<10))
		if n, _ := got.LastIndex(); n != 11 {
			t.Fatalf("%s: then last index %d", what, n)
		}
	}
	for cut := last; cut < end; cut++ {
		torn := bytes.Clone(data)
		clear(torn[cut:])
		expect(fmt.Sprintf("cut at byte %d", cut), torn)
	}
	first := last / sectorLen * sectorLen
	sectors := int((end - first + sectorLen - 1) / sectorLen)
	for lost := 1; lost < 1<<sectors; lost++ {
		torn := bytes.Clone(data)
		for i := range int64(sectors) {
			if lost>>i&1 == 1 {
				clear(torn[max(last, first+i*sectorLen):min(end, first+(i+1)*sectorLen)])
			}
		}
		expect(fmt.Sprintf("lost sectors %b", lost), torn)
	}
}

// What no crash leaves is refused: any other change of a byte that was flushed, in the last
// batch too.
func TestAChangedByteOfALogIsRefused(t *testing.T) {
	l, data, last, end := sampleLog(t)
	want := contents(t, l.segmentLog)
	refused := func(what string, changed []byte) {
		t.Helper()
		if _, err := l.withData(changed); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for at := range end {
		for n := range testrounds.Rounds(1, 8) {
			bit := (int(at) + n) % 8
			changed := bytes.Clone(data)
			changed[at] ^= 1 << bit
			if l, err := l.withData(changed); err == nil && maps.Equal(contents(t, l.segmentLog), want) {
				t.Fatalf("bit %d of byte %d: opened", bit, at)
			}
			refused(fmt.Sprintf("bit %d of byte %d, the last batch at %d", bit, at, last), changed)
		}
	}
	for at := range last {
		changed := bytes.Clone(data)
		clear(changed[at:min(last, at/sectorLen*sectorLen+sectorLen)])
		if !bytes.Equal(changed, data) {
			refused(fmt.Sprintf("zeros from byte %d", at), changed)
		}
	}
	for size := range len(data) {
		refused(fmt.Sprintf("cut to %d bytes", size), data[:size])
	}
	refused("a byte more", append(bytes.Clone(data), 0))
	for at := end; at < int64(len(data)); at++ {
		changed := bytes.Clone(data)
		changed[at] = 1
		l, err := l.withData(changed)
		if err == nil && !maps.Equal(contents(t, l.segmentLog), want) || err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("a byte at %d: %v", at, err)
		}
	}
}

// longLog returns a log of several segments.
func longLog(t testing.TB) *testLog {
	l := newTestLog(t, 700)
	for i := uint64(1); i < 40; i += 2 {
		must(t, l.StoreLogs(entries(i, i+1, 1)))
	}
	must(t, l.DeleteRange(1, 12))
	must(t, l.StoreLogs(entries(41, 41, 1)))
	return l
}

func TestALostOrForeignSegmentIsRefused(t *testing.T) {
	names, err := longLog(t).disk.names()
	must(t, err)
	if len(names) < 5 {
		t.Fatalf("%d segments", len(names))
	}
	for _, name := range names {
		for what, change := range map[string]func(d *memoryDisk){
			"lost": func(d *memoryDisk) { delete(d.files, name) },
			"cut":  func(d *memoryDisk) { f := d.files[name]; f.data = f.data[:len(f.data)-1] },
			"of another log": func(d *memoryDisk) {
				f := d.files[name]
				info, err := decodeSegment(f.data, int64(len(f.data)))
				must(t, err)
				info.id = logID{8}
				copy(f.data, info.encode())
			},
			"its neighbour": func(d *memoryDisk) {
				for _, other := range names {
					if other != name {
						d.files[name].data = bytes.Clone(d.files[other].data)
					}
				}
			},
			"without its last batch": func(d *memoryDisk) {
				f := d.files[name]
				batches, _, _, err := readBatches(f.data)
				must(t, err)
				clear(f.data[batches[len(batches)-1].at-batchHead:])
			},
		} {
			l := longLog(t)
			newest := segmentName(l.tail().number) == name
			disk := l.disk.kill()
			change(disk)
			err := l.reopen(disk, 700)
			if what == "without its last batch" && newest { // as after a crash
				must(t, err)
			} else if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
}

// Segments go once all their entries are deleted, and come back by no crash.
func TestACompactionRemovesWholeSegments(t *testing.T) {
	l := newTestLog(t, 700)
	for i := uint64(1); i <= 200; i++ {
		must(t, l.StoreLogs(entries(i, i, 1)))
		if i%20 == 0 {
			must(t, l.DeleteRange(1, i-10))
		}
	}
	names, err := l.disk.names()
	must(t, err)
	if len(names) > 5 || len(names) != len(l.segments) {
		t.Errorf("%d files for 10 entries, and %d segments", len(names), len(l.segments))
	}
	// The removals have not reached the disk.
	disk := l.disk.kill()
	before := newTestLog(t, 700)
	for i := uint64(1); i <= 20; i++ {
		must(t, before.StoreLogs(entries(i, i, 1)))
	}
	for name, f := range before.disk.files {
		if disk.files[name] == nil {
			disk.files[name] = f
		}
	}
	must(t, l.reopen(disk, 700))
	if first, _ := l.FirstIndex(); first != 191 {
		t.Errorf("first index %d", first)
	}
	if len(disk.files) != len(names) {
		t.Errorf("%d files, and %d before", len(disk.files), len(names))
	}
}

// logAlone is an engine that keeps the values in memory.
type logAlone struct {
	*segmentLog
	values Engine
}

func (e logAlone) Get(key []byte) ([]byte, error) { return e.values.Get(key) }
func (e logAlone) Set(key, value []byte) error    { return e.values.Set(key, value) }

// A full disk, a flush that fails, and a write of which a part got through.
func TestAFaultOfTheDiskEndsTheStore(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO, io.ErrShortWrite} {
		for call := 1; call <= 12; call++ {
			l := newTestLog(t, 700)
			must(t, l.StoreLogs(entries(1, 5, 1)))
			s := newStore(t, logAlone{l.segmentLog, NewMemoryEngine()}, 0, 0)
			l.disk.fail[l.disk.calls+call] = fault
			acknowledged := uint64(5)
			var err error
			for err == nil {
				if err = s.StoreLogs(entries(acknowledged+1, acknowledged+1, 1)); err == nil {
					acknowledged++
				}
			}
			calls := l.disk.calls
			if !errors.Is(err, fault) || !errors.Is(s.Failed(), fault) || s.StoreLogs(entries(20, 20, 1)) == nil || l.disk.calls != calls {
				t.Fatalf("call %d: %v, then %v", call, err, s.Failed())
			}
			must(t, l.reopen(l.disk.kill(), 700))
			if last, _ := l.LastIndex(); last != acknowledged && last != acknowledged+1 {
				t.Errorf("%v at call %d: last index %d, and %d was acknowledged", fault, call, last, acknowledged)
			}
		}
	}
}

// FuzzSegment reads bytes of anywhere, and a log that was patched: the log is refused, or
// has what it had, but maybe its last batch.
func FuzzSegment(f *testing.F) {
	l, data, last, end := sampleLog(f)
	want := contents(f, l.segmentLog)
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(last), make([]byte, 8), uint32(0))
	f.Add(uint32(last+30), []byte{0, 0}, uint32(0))
	f.Add(uint32(end-1), []byte{0}, uint32(7))
	f.Add(uint32(64), append([]byte{1, 0, 0, 0, 255, 255, 255, 255}, bytes.Repeat([]byte{batchMark[0]}, 24)...), uint32(0))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		_, _, _, _ = readBatches(append(make([]byte, segmentHead), patch...))
		_, _ = decodeSegment(patch, int64(len(patch)))
		_ = decodeEntry(patch, new(raft.Log))
		changed := bytes.Clone(data)
		copy(changed[int(at)%len(changed):], patch[:min(len(patch), 64)]) // more could hide a whole batch
		changed = changed[:len(changed)-int(cut)%len(changed)]
		got, err := l.withData(changed)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			return
		}
		have := contents(t, got.segmentLog)
		for i := uint64(3); i <= 9; i++ {
			if have[i] != want[i] {
				t.Errorf("entry %d is %q", i, have[i])
			}
		}
		if len(have) != 7 && !maps.Equal(have, want) {
			t.Errorf("%d entries", len(have))
		}
	})
}

// A hole makes a file look large. The head tells, before the file is read into memory.
func TestAGiantSegmentIsRefusedUnread(t *testing.T) {
	dir := t.TempDir()
	s := openDurable(t, dir)
	must(t, s.StoreLogs(entries(1, 9, 1)))
	must(t, s.Close())
	path := filepath.Join(dir, logDir, segmentName(1))
	must(t, os.Truncate(path, 1<<42))
	if _, err := OpenDurable(dir, Options{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "4398046511104 bytes") {
		t.Errorf("a segment with a hole: %v", err)
	}
	info := segmentInfo{number: 1, oldest: 1, size: 1 << 42}
	if _, err := decodeSegment(info.encode(), info.size); !errors.Is(err, ErrDamaged) {
		t.Errorf("a head that says so: %v", err)
	}
}

// The newest segment is lost with its name. All others are whole, and only the note in the
// bolt file knows of the segment.
func TestALostNewestSegmentIsNoted(t *testing.T) {
	dir := t.TempDir()
	open := func() (*segmentEngine, error) {
		bolt, err := openBolt(filepath.Join(dir, "raft.db"), Options{})
		must(t, err)
		e, err := openSegments(bolt, dirDisk(filepath.Join(dir, logDir)), Options{}, 700, 700)
		if err != nil {
			must(t, bolt.Close())
		}
		return e, err
	}
	e, err := open()
	must(t, err)
	for i := uint64(1); len(e.log.segments) < 4; i++ {
		must(t, e.StoreLogs(entries(i, i, 1)))
	}
	must(t, e.Close())
	must(t, os.Remove(filepath.Join(dir, logDir, segmentName(4))))
	if _, err := open(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), segmentName(4)+" is not there") {
		t.Errorf("without the newest segment: %v", err)
	}
}

// After unflushed writes nothing is trusted: all bytes are written and flushed once more.
func TestUnflushedBytesAreWrittenAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	l := newTestLog(t, 700)
	l.segmentLog.sync = false
	for i := uint64(1); i <= 40; i++ {
		must(t, l.StoreLogs(entries(i, i, 1)))
	}
	want := contents(t, l.segmentLog)
	for _, s := range l.segments { // the kernel has failed to write them, and has told so
		s.file.(*memoryFile).writes = nil
	}
	l.all = true
	must(t, l.reopen(l.disk.kill(), 700))
	must(t, l.reopen(l.disk.crash(r), 700))
	if got := contents(t, l.segmentLog); !maps.Equal(got, want) {
		t.Errorf("%d entries of %d after the crash", len(got), len(want))
	}
}

// Once an unflushed store is settled, each write that returns is on the disk.
func TestASettledStoreIsFlushed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, settle := range []bool{false, true} {
		l := newTestLog(t, 700)
		l.segmentLog.sync = false
		s := newStore(t, logAlone{l.segmentLog, NewMemoryEngine()}, 0, 0)
		s.unflushed = true
		must(t, s.StoreLogs(entries(1, 10, 1)))
		if settle {
			must(t, s.Settle())
		}
		must(t, s.StoreLogs(entries(11, 12, 1)))
		must(t, l.reopen(l.disk.crash(r), 700))
		if last, _ := l.LastIndex(); settle != (last == 12) {
			t.Errorf("settled %t: the last index is %d after a crash", settle, last)
		}
	}
}

// A crash has cut a large batch short, and the flush of the zeros over its remains has
// failed: the next process sees zeros that are not on the disk.
func TestZerosOverATornBatchAreOnTheDisk(t *testing.T) {
	const limit = 2 << 20
	r := rand.New(rand.NewPCG(6, 6))
	l := newTestLog(t, limit)
	must(t, l.StoreLogs(entries(1, 5, 1)))
	l.tail().file.(*memoryFile).durable[limit-1] = 1
	must(t, l.reopen(l.disk.kill(), limit))
	var want map[uint64]string
	for i := range uint64(2) { // the second one begins a segment
		large := entries(6+i, 6+i, 1)
		large[0].Data = make([]byte, limit*i)
		must(t, l.StoreLogs(large))
		want = contents(t, l.segmentLog)
	}
	must(t, l.reopen(l.disk.crash(r), limit))
	if got := contents(t, l.segmentLog); !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
}
