package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/wire"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// identity is what a member must not forget: which cluster it is in, what it
// promised while founding, under which generation it votes. With a Dir it is one
// record in identity.db, whose file lock also keeps a second process out of the
// directory for as long as the node runs.
type identity struct {
	db *bolt.DB // nil: in memory

	mu  sync.Mutex
	rec identityRecord
}

type identityRecord struct {
	Version    uint8
	Name       string
	Cluster    string         // the cluster's name
	Founding   *wire.Founding // nil: not in a cluster yet
	Generation uint64         // of the raft store that is, or will be
	Stored     bool           // a store of this generation has been put to use
	Promise    acceptor       // kept while founding
	Peers      []string       // addresses last known
	Token      uint64         // the highest token seen
}

const (
	identityVersion = 1
	identityFile    = "identity.db"
	maxPeers        = 64
)

var identityBucket, identityKey = []byte("member"), []byte("record")

// openIdentity reads the member's record in dir, or begins an empty one. A
// member that was not named takes the record's name.
func openIdentity(dir, name, cluster string, named bool) (*identity, error) {
	id := &identity{rec: identityRecord{Version: identityVersion, Name: name, Cluster: cluster}}
	if dir == "" {
		return id, nil
	}
	bad := func(format string, args ...any) error {
		return &ConfigError{"Config.Dir", fmt.Sprintf("%s: ", dir) + fmt.Sprintf(format, args...)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bad("%v", err)
	}
	db, err := bolt.Open(filepath.Join(dir, identityFile), 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, bad("in use by another process")
	case err != nil:
		return nil, bad("%v", err)
	}
	id.db = db
	err = db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(identityBucket)
		if b == nil {
			return nil
		}
		var rec identityRecord
		if err := wire.Unmarshal(b.Get(identityKey), &rec); err != nil {
			return bad("damaged: %v", err)
		}
		switch {
		case rec.Version != identityVersion:
			return bad("written by version %d, this one reads %d", rec.Version, identityVersion)
		case named && rec.Name != name:
			return bad("belongs to member %q, not %q", rec.Name, name)
		case rec.Cluster != cluster:
			return bad("belongs to cluster %q, not %q", rec.Cluster, cluster)
		}
		id.rec = rec
		return nil
	})
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return id, nil
}

// syncDir makes names of new files durable, where the system can.
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

// get returns the record. The caller must not change what it points to.
func (id *identity) get() identityRecord {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.rec
}

// update changes the record, and with a Dir makes the change durable before it
// returns. If that fails nothing is changed.
func (id *identity) update(change func(*identityRecord)) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	rec := id.rec
	change(&rec)
	if id.db != nil {
		err := id.db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(identityBucket)
			if err != nil {
				return err
			}
			return b.Put(identityKey, wire.Marshal(&rec))
		})
		if err != nil {
			return fmt.Errorf("cluster: identity not stored: %w", err)
		}
	}
	id.rec = rec
	return nil
}

// remember keeps addresses for a start at which Join leads nowhere.
func (id *identity) remember(peers []string) error {
	slices.Sort(peers)
	peers = peers[:min(len(peers), maxPeers)]
	if slices.Equal(peers, id.get().Peers) {
		return nil
	}
	return id.update(func(r *identityRecord) { r.Peers = peers })
}

func (id *identity) close() error {
	if id.db == nil {
		return nil
	}
	return id.db.Close()
}
