package raftstore

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/files"
)

// maxSnapshots is the number of snapshots that are kept: the newest, and an older
// snapshot to fall back on.
const maxSnapshots = 2

// Suffixes of the files of a snapshot.
const (
	snapshotSuffix = ".snapshot"
	sinkSuffix     = ".tmp" // not closed yet
)

// OpenSnapshots returns the snapshots kept in dir, and makes missing directories.
// The caller must have opened the Store in dir before, because OpenSnapshots
// deletes unfinished snapshots, which a crash left or another process writes. A
// nil logger logs nothing.
//
// The newest snapshot is read to its end, and the error matches ErrDamaged if it is
// damaged: the entries in front of it may be gone from the log.
//
// Not raft.FileSnapshotStore, which has no checksum over a snapshot's index, term
// and configuration, passes over damaged snapshots to older ones, and lets other
// users read.
func OpenSnapshots(dir string, logger hclog.Logger) (raft.SnapshotStore, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	s := &fileSnapshots{dir: filepath.Join(dir, "snapshots"), log: logger}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: making the snapshot directory: %w", err)
	}
	// The name of the new directory too: without it a crash would leave a log whose
	// beginning a snapshot had, and no snapshot.
	if err := files.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("cluster: making the snapshot directory: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cluster: reading the snapshot directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), sinkSuffix) {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return nil, fmt.Errorf("cluster: removing an unfinished snapshot: %w", err)
			}
		}
	}
	names, err := s.names()
	if err != nil {
		return nil, fmt.Errorf("cluster: reading the snapshot directory: %w", err)
	}
	if len(names) > 0 {
		_, r, err := s.Open(names[0].id())
		if err != nil {
			return nil, err
		}
		_ = r.Close()
	}
	return s, nil
}

// CheckWhole returns an error that matches ErrDamaged if the log begins behind the newest
// snapshot: the entries between are lost, as when somebody has removed the snapshots. Raft
// would end the process at the first entry that it applies, after each restart anew.
func CheckWhole(log *Store, snapshots raft.SnapshotStore) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	list, err := snapshots.List()
	if err != nil {
		return err
	}
	var newest uint64
	if len(list) > 0 {
		newest = list[0].Index
	}
	if first > newest+1 {
		return fmt.Errorf("cluster: %w: the log begins with entry %d, and the newest snapshot ends with entry %d", ErrDamaged, first, newest)
	}
	return nil
}

// fileSnapshots keeps each snapshot in a file. A snapshot exists from the moment
// its sink is closed, and never before.
type fileSnapshots struct {
	dir string
	log hclog.Logger
	mu  sync.Mutex // held while files are named or removed
}

// snapshotName is the name of a snapshot.
type snapshotName struct {
	term, index uint64
	made        int64 // in ms since 1970
}

func (n snapshotName) id() string { return fmt.Sprintf("%d-%d-%d", n.term, n.index, n.made) }

// parseSnapshotName reads an ID that id has made.
func parseSnapshotName(id string) (n snapshotName, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return n, false
	}
	var err1, err2, err3 error
	n.term, err1 = strconv.ParseUint(parts[0], 10, 64)
	n.index, err2 = strconv.ParseUint(parts[1], 10, 64)
	n.made, err3 = strconv.ParseInt(parts[2], 10, 64)
	return n, err1 == nil && err2 == nil && err3 == nil && n.id() == id
}

// names lists the closed snapshots, the newest first.
func (s *fileSnapshots) names() ([]snapshotName, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []snapshotName
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), snapshotSuffix); ok {
			if n, ok := parseSnapshotName(id); ok {
				names = append(names, n)
			}
		}
	}
	slices.SortFunc(names, func(a, b snapshotName) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.index, a.index), cmp.Compare(b.made, a.made))
	})
	return names, nil
}

func (s *fileSnapshots) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

// Create begins a snapshot. Open and List know the snapshot once its sink is
// closed.
func (s *fileSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("cluster: snapshots of version %d are not supported", version)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.names()
	if err != nil {
		return nil, fmt.Errorf("cluster: making a snapshot: %w", err)
	}
	name := snapshotName{term, index, time.Now().UnixMilli()}
	for _, n := range names {
		if n.term == term && n.index == index {
			name.made = max(name.made, n.made+1) // newer than all others, also than one of this moment
		}
	}
	head, err := encodeSnapshotHead(&raft.SnapshotMeta{
		Version: version, ID: name.id(), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, name.id()+sinkSuffix)
	f, err := files.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return nil, fmt.Errorf("cluster: making a snapshot: %w", err)
	}
	k := &fileSink{store: s, id: name.id(), path: path, file: f, sum: crc32.New(castagnoli)}
	k.out = bufio.NewWriterSize(io.MultiWriter(f, k.sum), 1<<20)
	if _, err := k.out.Write(head); err != nil { // fits the buffer, or is the first write
		return nil, errors.Join(err, k.Cancel())
	}
	return k, nil
}

// List describes the snapshots, the newest first. List passes over damaged ones
// and says so.
func (s *fileSnapshots) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.names()
	if err != nil {
		return nil, fmt.Errorf("cluster: reading the snapshot directory: %w", err)
	}
	var metas []*raft.SnapshotMeta
	for _, n := range names[:min(len(names), maxSnapshots)] {
		f, meta, _, err := s.open(n.id())
		if err != nil {
			s.log.Error("snapshot not usable", "error", err, "next", "check the disk of Dir")
			continue
		}
		_ = f.Close()
		metas = append(metas, meta)
	}
	return metas, nil
}

// Open returns a reader of a snapshot, after a look at all its bytes. The error
// matches ErrDamaged if they are not as they were written.
func (s *fileSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, meta, begin, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSnapshot(f, begin+meta.Size); err != nil {
		_ = f.Close()
		return nil, nil, s.unusable(id, err)
	}
	return meta, snapshotReader{bufio.NewReaderSize(io.NewSectionReader(f, begin, meta.Size), 1<<16), f}, nil
}

// open opens the file of a snapshot, whose data begin at begin, and reads all but
// the data.
func (s *fileSnapshots) open(id string) (f *os.File, meta *raft.SnapshotMeta, begin int64, err error) {
	if _, ok := parseSnapshotName(id); !ok {
		return nil, nil, 0, fmt.Errorf("cluster: %q is no snapshot", id)
	}
	if f, err = files.Open(s.path(id), os.O_RDONLY, 0); err != nil {
		return nil, nil, 0, s.unusable(id, err)
	}
	info, err := f.Stat()
	if err == nil {
		meta, begin, err = readSnapshotMeta(f, info.Size())
	}
	if err == nil && meta.ID != id {
		err = fmt.Errorf("%w: is snapshot %s", ErrDamaged, meta.ID)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, s.unusable(id, err)
	}
	return f, meta, begin, nil
}

func (s *fileSnapshots) unusable(id string, err error) error {
	return fmt.Errorf("cluster: snapshot %s: %w", s.path(id), err)
}

// snapshotReader reads the data of a snapshot.
type snapshotReader struct {
	io.Reader
	io.Closer
}

// fileSink receives a snapshot from raft. It is used by a single goroutine at a
// time.
type fileSink struct {
	store *fileSnapshots
	id    string
	path  string
	file  *os.File
	out   *bufio.Writer // to file and sum
	sum   hash.Hash32
	size  uint64
	ended error // errCancelled or errPublished; nil: the sink takes bytes
}

func (k *fileSink) ID() string { return k.id }

func (k *fileSink) Write(p []byte) (int, error) {
	if k.ended != nil {
		return 0, k.ended
	}
	n, err := k.out.Write(p)
	k.size += uint64(n)
	return n, err
}

// Close publishes the snapshot, durably. A second Close does nothing. Close after
// Cancel, or after a write that failed, fails and publishes nothing.
func (k *fileSink) Close() error {
	switch k.ended {
	case errPublished:
		return nil
	case errCancelled:
		return errCancelled
	}
	if err := k.finish(); err != nil {
		return errors.Join(fmt.Errorf("cluster: snapshot not written: %w", err), k.Cancel())
	}
	k.ended = errPublished
	return k.store.publish(k.path, k.id)
}

// finish writes what is behind the data, and closes the file.
func (k *fileSink) finish() error {
	if _, err := k.out.Write(snapshotSize(k.size)); err != nil {
		return err
	}
	if err := k.out.Flush(); err != nil {
		return err
	}
	if _, err := k.file.Write(snapshotSum(k.sum.Sum32())); err != nil {
		return err
	}
	if err := k.file.Sync(); err != nil {
		return err
	}
	return k.file.Close()
}

// Cancel discards the snapshot. Cancel after Close does nothing.
func (k *fileSink) Cancel() error {
	if k.ended != nil {
		return nil
	}
	k.ended = errCancelled
	_ = k.file.Close() // finish may have closed it
	return os.Remove(k.path)
}

// publish gives a finished file its name, and removes the oldest snapshots over
// the limit.
func (s *fileSnapshots) publish(path, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(path, s.path(id)); err != nil {
		_ = os.Remove(path) // raft tries again, under another name each time
		return fmt.Errorf("cluster: snapshot not published: %w", err)
	}
	if err := files.SyncDir(s.dir); err != nil {
		return fmt.Errorf("cluster: snapshot not published durably: %w", err)
	}
	names, err := s.names()
	if err != nil {
		return fmt.Errorf("cluster: reading the snapshot directory: %w", err)
	}
	for _, n := range names[min(len(names), maxSnapshots):] {
		if err := os.Remove(s.path(n.id())); err != nil {
			s.log.Warn("old snapshot not removed", "error", err, "next", "nothing, unless it happens again: then check the disk of Dir")
		}
	}
	return nil
}
