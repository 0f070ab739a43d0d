package consensus

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/files"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/member"
)

// This file moves raft stores out of use. A store is never deleted at the moment
// when the store goes out of use: the store may be the last copy of a lock table,
// and an operator who named the wrong member as gone must be able to look. The
// price is the disk space of two stores.
//
// A store out of use must not vote again, even if somebody copies the store back.
// So the stamp is written into the store before the store is renamed, and no Raft
// starts on a stamped store.

const (
	asidePrefix = raftDir + ".aside-"
	stampFile   = "retired"
	maxAside    = 2 // stores kept, the newest
)

// setAside stamps the raft store in the member's Dir as retired and renames the
// store to raft.aside-<cluster>-<n>. rec describes the member while the store was
// in use. Older stores than the newest two are removed. setAside does nothing
// without a Dir or without a store. After an error the store is in place, maybe
// stamped.
func (s *Seat) setAside(rec identity.Record) error {
	if s.cfg.Dir == "" {
		return nil
	}
	store := filepath.Join(s.cfg.Dir, raftDir)
	content, err := os.ReadDir(store)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cluster: %w", err)
	case len(content) == 0:
		return os.Remove(store)
	}
	cluster := "none"
	if rec.Founding != nil {
		cluster = hex.EncodeToString(rec.Founding.Cluster[:4])
	}
	stamp := fmt.Sprintf("cluster %s\nraft %s\nmoved aside %s\n",
		cluster, member.RaftID(s.cfg.Self.Name, max(rec.Generation, 1)), time.Now().UTC().Format(time.RFC3339))
	if err := writeDurably(filepath.Join(store, stampFile), stamp); err != nil {
		return fmt.Errorf("cluster: store not moved aside: %w", err)
	}
	earlier := s.asideStores()
	n := 1
	if len(earlier) > 0 {
		n = earlier[len(earlier)-1].number + 1
	}
	to := filepath.Join(s.cfg.Dir, asidePrefix+cluster+"-"+strconv.Itoa(n))
	if err := os.Rename(store, to); err != nil {
		return fmt.Errorf("cluster: store not moved aside: %w", err)
	}
	s.cfg.Self.Log.Info("raft store moved aside", "to", to, "next", "nothing: the newest two are kept")
	for ; len(earlier) >= maxAside; earlier = earlier[1:] {
		if err := os.RemoveAll(earlier[0].path); err != nil {
			s.cfg.Self.Log.Warn("old raft store not removed", "store", earlier[0].path, "error", err,
				"next", "remove it by hand")
		}
	}
	return files.SyncDir(s.cfg.Dir)
}

// stamped reports whether the store in the member's Dir has been retired.
func (s *Seat) stamped() bool {
	if s.cfg.Dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(s.cfg.Dir, raftDir, stampFile))
	return err == nil
}

// asideStore is a store moved aside.
type asideStore struct {
	path    string
	cluster string // the first bytes of the cluster ID, in hexadecimal
	number  int    // in the order of moving
}

// asideStores lists the stores moved aside, the oldest first.
func (s *Seat) asideStores() []asideStore {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil
	}
	var out []asideStore
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), asidePrefix)
		cluster, digits, two := strings.Cut(name, "-")
		number, err := strconv.Atoi(digits)
		if ok && two && err == nil && e.IsDir() {
			out = append(out, asideStore{filepath.Join(s.cfg.Dir, e.Name()), cluster, number})
		}
	}
	slices.SortFunc(out, func(a, b asideStore) int { return cmp.Compare(a.number, b.number) })
	return out
}

// writeDurably writes a small file that outlives a crash of the host.
func writeDurably(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}
