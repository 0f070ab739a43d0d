package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wardmote/wardmote/internal/raftstore"
)

// badDir is the refusal of a Dir.
func badDir(dir string, err error) error {
	return &ConfigError{"Config.Dir", dir + ": " + err.Error()}
}

// storeError turns the refusal of a damaged raft store, or of one in use, into a
// ConfigError with the way out, and leaves other errors alone.
//
// The way out of damage is not an older copy of the store: it lacks votes and
// entries that this voter has acknowledged, so a majority that counted them would
// be none. Without its store the member takes a new raft ID, and the leader brings
// it up to date. The damaged store is not removed here: if the stores of a majority
// are damaged at once, it may have the last whole entry.
func (n *Node) storeError(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrInUse):
		return badDir(n.cfg.Dir, err)
	case errors.Is(err, raftstore.ErrOtherLog):
		return &ConfigError{"Config.Voting.Log", fmt.Sprintf("%v and %v. Set Voting.Log as it was; or, while a majority of the voters is well, move %s away "+
			"and start again: this member then votes as a new one, once it has caught up", n.cfg.Voting.Log, err, filepath.Join(n.cfg.Dir, "raft"))}
	case n.cfg.Dir == "" || !errors.Is(err, raftstore.ErrDamaged):
		return err
	}
	store := filepath.Join(n.cfg.Dir, "raft")
	return &ConfigError{"Config.Dir", err.Error() + ". While a majority of the voters is well, move " + store +
		" away and start again: this member then votes as a new one, once it has caught up. " +
		"Never put an older copy in its place: the copy lacks votes and entries of this member, which others rely on"}
}

// tellNarrowed tells the operator that other users had rights to files in Dir.
func (n *Node) tellNarrowed() {
	if names := n.record.Narrowed(); len(names) > 0 {
		n.self.Log.Info("modes of files in Dir narrowed", "files", strings.Join(names, " "),
			"next", "nothing if a volume is mounted with an fsGroup; else find out who widened them")
	}
}
