package consensus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// spool receives snapshots for raft. Raft reads a snapshot on its main goroutine, and
// takes the snapshot into its store before it restores from it: a snapshot that drips
// would stop the voter, and a damaged one would be the newest in the store at the
// next start. So a snapshot is received and checked whole before raft hears of it.
//
// Only one snapshot arrives at a time. A snapshot of a later term ends an earlier
// one, as does another one of the same leader, which sends one at a time.
type spool struct {
	path  string // of the file; "": in memory
	check func(io.Reader) error

	mu  sync.Mutex
	now *transfer // nil: none
}

// transfer is a snapshot that arrives.
type transfer struct {
	term   uint64
	leader string
	cut    context.CancelFunc
	done   chan struct{} // closed when the file is free
}

// arrivingFile is the name of the file in the directory of the store.
const arrivingFile = "arriving"

var errBusy = errors.New("another snapshot arrives")

// newSpool returns a spool that keeps an arriving snapshot in dir, or in memory, and
// removes the rest of an earlier process.
func newSpool(dir string, check func(io.Reader) error) *spool {
	s := &spool{check: check}
	if dir != "" {
		s.path = filepath.Join(dir, arrivingFile)
		os.Remove(s.path)
	}
	return s
}

// receive reads and checks the snapshot that follows a request. Every snapshotPart
// must arrive within timing.RaftIO. The caller removes the result.
func (s *spool) receive(conn net.Conn, in io.Reader, m *raft.InstallSnapshotRequest) (*arrived, error) {
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	now := &transfer{m.Term, string(m.ID), cut, make(chan struct{})}
	if err := s.begin(now); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	a := &arrived{spool: s, transfer: now}
	if err := a.fill(conn, in, m.Size); err != nil {
		a.remove()
		return nil, fmt.Errorf("snapshot of %d bytes: %w", m.Size, err)
	}
	return a, nil
}

// begin takes the place of the transfer under way, or returns errBusy: at once, or if
// raft keeps the earlier snapshot for longer than timing.RaftIO.
func (s *spool) begin(now *transfer) error {
	for {
		s.mu.Lock()
		before := s.now
		if before == nil {
			s.now = now
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if now.term < before.term || now.term == before.term && now.leader != before.leader {
			return errBusy
		}
		before.cut()
		late := time.NewTimer(timing.RaftIO)
		select {
		case <-before.done:
			late.Stop()
		case <-late.C:
			return errBusy
		}
	}
}

// arrived is a snapshot in the spool.
type arrived struct {
	spool    *spool
	transfer *transfer
	file     *os.File
	memory   [][]byte
}

func (a *arrived) fill(conn net.Conn, in io.Reader, size int64) (err error) {
	if a.spool.path != "" {
		if a.file, err = os.OpenFile(a.spool.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
	}
	// The check reads along, so that noise ends near its first wrong bytes, not after all the
	// room that the request claims.
	l := newTracker(a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := a.spool.check(l)
		if err == nil {
			_, err = io.Copy(io.Discard, l)
		}
		l.finish(err)
	}()
	for left := size; left > 0 && err == nil; left -= min(left, snapshotPart) {
		if err = l.await(); err == nil {
			conn.SetReadDeadline(time.Now().Add(timing.RaftIO))
			err = a.part(in, min(left, snapshotPart), &l.mu)
			l.add(min(left, snapshotPart), err)
		}
	}
	l.end(err)
	<-done
	conn.SetReadDeadline(time.Time{})
	if err == nil {
		err = l.wrong
	}
	return err
}

// tracker reads what has arrived of a snapshot, and waits for the rest. It may stay behind by
// maxBehind bytes: the time that a check takes for a large record is not the network's.
type tracker struct {
	a       *arrived
	mu      sync.Mutex
	changed *sync.Cond
	arrived int64
	read    int64
	ended   error // io.EOF after the last byte
	done    bool  // the check has ended
	wrong   error // its result
}

// maxBehind bounds the bytes that arrive before the check has read them.
const maxBehind = 32 * snapshotPart

func newTracker(a *arrived) *tracker {
	l := &tracker{a: a}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// await waits until the check is near, and returns its error if it has ended with one.
func (l *tracker) await() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.done && l.arrived-l.read > maxBehind {
		l.changed.Wait()
	}
	return l.wrong
}

// add notes n more bytes, or the error in their place.
func (l *tracker) add(n int64, err error) {
	if err == nil {
		l.mu.Lock()
		l.arrived += n
		l.mu.Unlock()
		l.changed.Broadcast()
	}
}

// end notes the end of the snapshot: err is nil if all has arrived.
func (l *tracker) end(err error) {
	l.mu.Lock()
	l.ended = cmp.Or(err, io.EOF)
	l.mu.Unlock()
	l.changed.Broadcast()
}

// finish notes the result of the check.
func (l *tracker) finish(err error) {
	l.mu.Lock()
	l.done, l.wrong = true, err
	l.mu.Unlock()
	l.changed.Broadcast()
}

func (l *tracker) Read(p []byte) (int, error) {
	l.mu.Lock()
	for l.read == l.arrived && l.ended == nil {
		l.changed.Wait()
	}
	at, n := l.read, min(int64(len(p)), l.arrived-l.read)
	if n == 0 && len(p) > 0 {
		defer l.mu.Unlock()
		return 0, l.ended
	}
	if l.a.file == nil {
		part := l.a.memory[at/snapshotPart]
		n = int64(copy(p[:n], part[at%snapshotPart:]))
	}
	l.mu.Unlock()
	if l.a.file != nil {
		if _, err := l.a.file.ReadAt(p[:n], at); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	l.read += n
	l.mu.Unlock()
	l.changed.Broadcast()
	return int(n), nil
}

// part takes the next bytes. Memory and disk grow with the bytes that arrive. The lock guards
// the list in memory.
func (a *arrived) part(in io.Reader, n int64, memory *sync.Mutex) error {
	if a.file != nil {
		_, err := io.CopyN(a.file, in, n)
		return err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return err
	}
	memory.Lock()
	a.memory = append(a.memory, b)
	memory.Unlock()
	return nil
}

// reader returns a reader of the snapshot from its beginning.
func (a *arrived) reader() io.Reader {
	if a.file != nil {
		if _, err := a.file.Seek(0, io.SeekStart); err != nil {
			return bytes.NewReader(nil) // too short: raft refuses it
		}
		return a.file
	}
	readers := make([]io.Reader, len(a.memory))
	for i, b := range a.memory {
		readers[i] = bytes.NewReader(b)
	}
	return io.MultiReader(readers...)
}

// remove frees the place of the snapshot.
func (a *arrived) remove() {
	if a.file != nil {
		a.file.Close()
		os.Remove(a.spool.path)
	}
	s := a.spool
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	close(a.transfer.done)
}
