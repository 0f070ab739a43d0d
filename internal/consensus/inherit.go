package consensus

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/files"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
)

// This file lets a successor go on from the table of its predecessor, on a disk. The
// founding of such a successor names one voter, the heir: the retired voter with the
// newest log. The heir works on a copy of its store, which stays aside until newer
// stores push it out.
//
// The heir takes every entry of its log for committed, although some may not be:
// entries beyond the last committed one were proposed, and nobody was told that
// they failed. Entries that a lost majority committed without the heir are missing;
// the operator that called Recover accepted this.

const (
	heirDir     = raftDir + ".heir" // the copy in preparation
	heirFile    = "heir"            // in a prepared store: the raft ID that it was prepared for
	maxHeirFile = 256
)

// heir returns the store from which this member's cluster goes on, if this member
// is the only first voter of a successor and has such a store.
func (s *Seat) heir(rec identity.Record) (asideStore, bool) {
	v := rec.Founding
	if s.cfg.Dir == "" || s.cfg.Engine != nil || len(v.Voters) != 1 || !rec.Retired.Voted ||
		!slices.Contains(v.Predecessors, rec.Retired.Cluster) {
		return asideStore{}, false
	}
	stores := s.asideStores()
	for i := len(stores) - 1; i >= 0; i-- {
		if strings.HasPrefix(fmt.Sprintf("%x", rec.Retired.Cluster), stores[i].cluster) {
			return stores[i], true
		}
	}
	return asideStore{}, false
}

// prepared reports whether the store in Dir was prepared for the raft ID before a
// crash.
func (s *Seat) prepared(id string) bool {
	if s.cfg.Dir == "" {
		return false
	}
	f, err := os.Open(filepath.Join(s.cfg.Dir, raftDir, heirFile))
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxHeirFile))
	return err == nil && string(b) == id
}

// inherit makes the raft store of the only voter id from a copy of the store from.
// After an error or a crash there is no store in Dir, and the next start tries
// again.
func (s *Seat) inherit(from asideStore, id string) error {
	work, store := filepath.Join(s.cfg.Dir, heirDir), filepath.Join(s.cfg.Dir, raftDir)
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := copyStore(work, from.path); err != nil {
		return fmt.Errorf("cluster: copying %s: %w", from.path, err)
	}
	if err := s.rewrite(work, id); err != nil {
		return fmt.Errorf("cluster: going on from %s: %w", from.path, err)
	}
	if err := writeDurably(filepath.Join(work, heirFile), id); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := os.Rename(work, store); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	s.cfg.Self.Log.Warn("going on from the table of the former cluster", "store", from.path,
		"next", "compare values that matter: the last changes before the loss may be missing")
	return files.SyncDir(s.cfg.Dir)
}

// rewrite turns the copied store into the store of a cluster with the one voter.
func (s *Seat) rewrite(dir, id string) error {
	logger := logging.HashiCorp(s.cfg.Self.Log)
	store, err := raftstore.OpenDurable(dir, raftstore.Options{BoltLog: s.cfg.Store.BoltLog})
	if err != nil {
		return err
	}
	snapshots, err := raftstore.OpenSnapshots(dir, logger)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = raft.ServerID(id), logger
	// The transport serves raft as an encoder of addresses here.
	err = raft.RecoverCluster(cfg, newFSM(s.cfg.NewTable(), snapshots, nil, func() {}), store, store, snapshots, &transport{}, raft.Configuration{
		Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)}},
	})
	return errors.Join(err, store.Close())
}

// copyStore copies the files of a store without its stamps. The copy outlives a crash of the
// host.
func copyStore(to, from string) error {
	var dirs []string
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			dirs = append(dirs, target)
			return os.MkdirAll(target, 0o700)
		case rel == stampFile || rel == heirFile || rel == arrivingFile:
			return nil
		}
		return copyFile(target, path)
	})
	for _, dir := range dirs {
		err = errors.Join(err, files.SyncDir(dir))
	}
	return err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// begin prepares the place of the store of a founding voter: empty, or with the
// table of the former cluster for its heir.
func (s *Seat) begin(rec identity.Record) error {
	id := member.RaftID(s.cfg.Self.Name, rec.Generation)
	if s.prepared(id) {
		return nil
	}
	// A store in Dir is of another generation, or of a founding that was cut short
	// before raft could speak to another voter: begin anew.
	if err := s.setAside(rec); err != nil {
		return err
	}
	if from, ok := s.heir(rec); ok {
		return s.inherit(from, id)
	}
	return nil
}
