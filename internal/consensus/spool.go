package consensus

import (
	"bytes"
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
	// The check reads along, so that noise ends with its first wrong bytes, not after all
	// the room that the request claims.
	reading, writing := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		err := a.spool.check(reading)
		if err == nil {
			_, err = io.Copy(io.Discard, reading)
		}
		reading.CloseWithError(err)
		checked <- err
	}()
	in = io.TeeReader(in, writing)
	for left := size; left > 0 && err == nil; left -= min(left, snapshotPart) {
		conn.SetReadDeadline(time.Now().Add(timing.RaftIO))
		err = a.part(in, min(left, snapshotPart))
	}
	writing.CloseWithError(err) // nil is the end of the snapshot
	if wrong := <-checked; err == nil {
		err = wrong
	}
	conn.SetReadDeadline(time.Time{})
	return err
}

// part takes the next bytes. Memory and disk grow with the bytes that arrive.
func (a *arrived) part(in io.Reader, n int64) error {
	if a.file != nil {
		_, err := io.CopyN(a.file, in, n)
		return err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return err
	}
	a.memory = append(a.memory, b)
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
