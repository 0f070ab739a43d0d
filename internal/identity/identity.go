package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/files"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// Record is a member's memory.
type Record struct {
	Name       string
	Cluster    string              // the cluster's name
	Founding   *wire.Founding      // nil: the member is in no cluster yet
	Generation uint64              // of the raft store that exists, or of the next one
	Stored     bool                // a store of this generation has been put to use
	Unflushed  string              // HostBoot while the store has writes that were not flushed; "": it has none
	Promise    Promise             // kept while founding
	Shunned    []machine.ClusterID // clusters ended by a founding that this member accepted
	Peers      []string            // addresses of members seen last
	Token      uint64              // the highest token seen
	Retired    Retirement          // the member's last retirement from a cluster; zero: none

	Boot uint64 // of the process that has the record, or had it last
	Addr string // that process's address
	Host string // HostBoot when that process started
	Past []Life // earlier processes of the same Host, whose sessions may still be open

	Key wire.DirSeed // of the directory, as long as Host is the same: the sessions of all processes since then carry the key's ID
}

// Life is an earlier process of the member.
type Life struct {
	Boot uint64
	Addr string
}

// Retirement is a promise: the member never votes again in Cluster. The promise
// is stored before the member's raft stops and before anybody is told.
type Retirement struct {
	Cluster [16]byte
	Voted   bool     // the member ran raft in the cluster until the promise
	Term    uint64   // of the last entry in the member's log
	Index   uint64   // of the last entry in the member's log
	Voters  []string // raft IDs of the latest configuration in the member's log
}

// RetiredHere reports whether the member has retired from its present cluster.
func (r Record) RetiredHere() bool {
	return r.Founding != nil && r.Retired.Cluster == r.Founding.Cluster
}

// Promise is a member's memory of the founding: see internal/founding.
type Promise struct {
	Promised wire.Ballot    // no lower ballot is accepted
	Accepted wire.Ballot    // the highest ballot accepted; zero if none
	Value    *wire.Founding // the value accepted in that ballot
}

// maxPeers is the number of addresses remembered.
const maxPeers = 64

// Store holds a member's record. Its methods may be called from any goroutine.
type Store struct {
	path     string // of the record; "": in memory
	narrowed []string

	disk    *host.Disk    // under the file; nil: none for tests
	storing chan struct{} // has an element during a change: one at a time, for as long as the disk takes
	givenUp chan struct{} // closed by GiveUp
	once    sync.Once     // of GiveUp
	lock    *os.File      // of the directory; nil: in memory, or closed; used by the one that stores

	mu  sync.Mutex // never held while the disk works, so that a disk that hangs keeps no reader
	rec Record     // as stored
}

// Open reads the record in dir, or begins an empty one for the member and
// cluster of the given names. dir "" means in memory. A record of another
// cluster is refused, and of another member if named is true; a member that was
// not named takes the name in the record. Open makes dir if it is missing, refuses
// a dir that other users can change (see package files), and waits up to a second
// for another process to close it. The error matches ErrDamaged if the record is
// damaged, and files.ErrInUse if another process has dir open. When Open fails,
// nothing stays open, and no file has changed but for narrower modes.
func Open(dir, name, cluster string, named bool) (*Store, error) {
	s := &Store{rec: Record{Name: name, Cluster: cluster}, storing: make(chan struct{}, 1), givenUp: make(chan struct{})}
	if dir == "" {
		return s, nil
	}
	narrowed, err := files.Prepare(dir)
	if err != nil {
		return nil, err
	}
	if s.lock, err = files.Take(dir); err != nil {
		return nil, err
	}
	s.path = filepath.Join(dir, files.Identity)
	if s.narrowed, err = files.Inspect(dir); err == nil {
		err = s.read(name, cluster, named)
	}
	if err == nil {
		err = files.SyncDir(dir)
	}
	if narrowed {
		s.narrowed = append(s.narrowed, ".")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// read takes the stored record, if there is one and it belongs to this member.
func (s *Store) read(name, cluster string, named bool) error {
	f, err := files.Open(s.path, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	rec, err := decode(data)
	switch {
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%s: %w. Keep the other members running, move Dir away and start again: this process then joins as a new member. "+
			"Never put an older copy in its place: the copy lacks votes and promises of this member, which others rely on", files.Identity, err)
	case err != nil:
		return fmt.Errorf("%s: %w", files.Identity, err)
	case named && rec.Name != name:
		return fmt.Errorf("belongs to member %q, not %q", rec.Name, name)
	case rec.Cluster != cluster:
		return fmt.Errorf("belongs to cluster %q, not %q", rec.Cluster, cluster)
	}
	s.rec = rec
	return nil
}

// Over puts a disk of a test under the file. Call Over before the first change.
func (s *Store) Over(disk *host.Disk) { s.disk = disk }

// Narrowed returns the names of the files whose modes Open has narrowed, because
// other users had rights to them.
func (s *Store) Narrowed() []string { return s.narrowed }

// Get returns the record as stored, and does not wait for an Update under way. The caller
// must not change the values it points to.
func (s *Store) Get() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

// errGivenUp is the error of changes after GiveUp.
var errGivenUp = errors.New("the disk does not answer, and the member ends")

// begin waits for the turn to store, which end gives back. After GiveUp, begin fails.
func (s *Store) begin() error {
	select {
	case s.storing <- struct{}{}:
	case <-s.givenUp:
		return errGivenUp
	}
	select {
	case <-s.givenUp:
		s.end()
		return errGivenUp
	default:
		return nil
	}
}

func (s *Store) end() { <-s.storing }

// GiveUp makes the change under way fail, and all later ones: a process that ends must not
// wait for a disk that hangs. The directory stays locked while a write is under way, since
// the write can still arrive.
func (s *Store) GiveUp() { s.once.Do(func() { close(s.givenUp) }) }

// replace replaces the file in a turn, and ends the turn unless the result is nil. After
// GiveUp, replace returns at once, and the turn ends when the disk answers: no call ends a
// write.
func (s *Store) replace(data []byte) error {
	done := make(chan error, 1)
	go func() {
		err := s.disk.Write()
		if err == nil {
			err = files.Replace(s.path, data)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			s.end()
		}
		return err
	case <-s.givenUp:
		go func() {
			<-done
			s.end()
		}()
		return errGivenUp
	}
}

// Update changes the record. With a directory the change is durable before
// Update returns. When Update fails, this process goes on with the record as it
// was; a later process may find the change.
func (s *Store) Update(change func(*Record)) error {
	if err := s.begin(); err != nil {
		return err
	}
	rec := s.Get()
	change(&rec)
	if s.path != "" {
		if s.lock == nil {
			s.end()
			return errors.New("cluster: identity not stored: the directory was given back")
		}
		data := encode(&rec)
		if len(data) > maxFile {
			s.end()
			return fmt.Errorf("cluster: identity not stored: %d bytes exceed %d", len(data), maxFile)
		}
		if err := s.replace(data); err != nil {
			return fmt.Errorf("cluster: identity not stored: %w", err)
		}
	}
	s.mu.Lock()
	s.rec = rec
	s.mu.Unlock()
	s.end()
	return nil
}

// Durable reports whether the record outlives the process.
func (s *Store) Durable() bool { return s.path != "" }

// RememberPeers keeps up to 64 addresses for a start without a working Join, and
// does nothing in memory. Of more addresses it keeps one of each host, then a second one, and so
// on: the processes of one host leave room for the others.
func (s *Store) RememberPeers(addrs []string) error {
	addrs = byTurns(addrs)
	addrs = addrs[:min(len(addrs), maxPeers)]
	slices.Sort(addrs)
	if s.path == "" || slices.Equal(addrs, s.Get().Peers) {
		return nil
	}
	return s.Update(func(r *Record) { r.Peers = addrs })
}

// byTurns returns the addresses with the first of each host before the second of any.
func byTurns(addrs []string) []string {
	addrs = slices.Sorted(slices.Values(addrs))
	turn, of := make(map[string]int), make(map[string]int)
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		turn[addr] = of[host]
		of[host]++
	}
	slices.SortStableFunc(addrs, func(a, b string) int { return cmp.Compare(turn[a], turn[b]) })
	return addrs
}

// Close gives the directory back. The record can still be read. A second Close
// does nothing. After GiveUp, Close does not wait for a write under way, and fails: the
// directory is given back when the disk answers, since the write can still arrive.
func (s *Store) Close() error {
	select {
	case s.storing <- struct{}{}:
		return s.unlock()
	case <-s.givenUp:
	}
	select {
	case s.storing <- struct{}{}:
		return s.unlock()
	default:
		go func() {
			s.storing <- struct{}{}
			_ = s.unlock() // the process has ended its part
		}()
		return errGivenUp
	}
}

// unlock gives the directory back, in a turn that it ends.
func (s *Store) unlock() error {
	defer s.end()
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return lock.Close()
}
