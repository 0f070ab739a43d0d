package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/wardmote/wardmote/internal/wire"
)

// Record is a member's memory.
type Record struct {
	Version    uint8
	Name       string
	Cluster    string         // the cluster's name
	Founding   *wire.Founding // nil: the member is in no cluster yet
	Generation uint64         // of the raft store that exists, or of the next one
	Stored     bool           // a store of this generation has been put to use
	Promise    Promise        // kept while founding
	Peers      []string       // addresses of members seen last
	Token      uint64         // the highest token seen
}

// Promise is a member's memory of the founding: see internal/founding.
type Promise struct {
	Promised wire.Ballot    // no lower ballot is accepted
	Accepted wire.Ballot    // the highest ballot accepted; zero if none
	Value    *wire.Founding // the value accepted in that ballot
}

const (
	version  = 1
	file     = "identity.db"
	maxPeers = 64
)

var bucketName, recordKey = []byte("member"), []byte("record")

// Store holds a member's record. Its methods may be called from any goroutine.
type Store struct {
	db *bbolt.DB // nil: in memory

	mu  sync.Mutex
	rec Record
}

// Open reads the record in dir, or begins an empty one for the member and
// cluster of the given names. dir "" means in memory. A record of another
// cluster is refused, and of another member if named is true; a member that was
// not named takes the name in the record. Open makes dir if it is missing, and
// waits up to a second for another process to close it. When Open fails, nothing
// stays open.
func Open(dir, name, cluster string, named bool) (*Store, error) {
	s := &Store{rec: Record{Version: version, Name: name, Cluster: cluster}}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, file), 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, errors.New("in use by another process")
	case err != nil:
		return nil, err
	}
	s.db = db
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketName)
		if b == nil {
			return nil
		}
		return s.load(b.Get(recordKey), name, cluster, named)
	})
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// load takes the stored bytes for the record, if they belong to this member.
func (s *Store) load(stored []byte, name, cluster string, named bool) error {
	var rec Record
	if err := wire.Unmarshal(stored, &rec); err != nil {
		return fmt.Errorf("damaged: %w", err)
	}
	switch {
	case rec.Version != version:
		return fmt.Errorf("written by version %d, this program reads version %d", rec.Version, version)
	case named && rec.Name != name:
		return fmt.Errorf("belongs to member %q, not %q", rec.Name, name)
	case rec.Cluster != cluster:
		return fmt.Errorf("belongs to cluster %q, not %q", rec.Cluster, cluster)
	}
	s.rec = rec
	return nil
}

// syncDir makes the names of new files durable, where the operating system can.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get returns the record. The caller must not change the values it points to.
func (s *Store) Get() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

// Update changes the record. With a directory the change is durable before
// Update returns. When Update fails, nothing has changed.
func (s *Store) Update(change func(*Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.rec
	change(&rec)
	if s.db != nil {
		err := s.db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			if err != nil {
				return err
			}
			return b.Put(recordKey, wire.Marshal(&rec))
		})
		if err != nil {
			return fmt.Errorf("cluster: identity not stored: %w", err)
		}
	}
	s.rec = rec
	return nil
}

// Durable reports whether the record outlives the process.
func (s *Store) Durable() bool { return s.db != nil }

// RememberPeers keeps up to 64 addresses for a start without a working Join, and
// does nothing in memory.
func (s *Store) RememberPeers(addrs []string) error {
	addrs = slices.Clone(addrs)
	slices.Sort(addrs)
	addrs = addrs[:min(len(addrs), maxPeers)]
	if s.db == nil || slices.Equal(addrs, s.Get().Peers) {
		return nil
	}
	return s.Update(func(r *Record) { r.Peers = addrs })
}

// Close gives the directory back. The record can still be read.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}
