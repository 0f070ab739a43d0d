package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// Removed stops the Raft of that ID for good, because the ID has left the
// configuration. The member takes a new generation and may be invited again.
// Removed waits until the Raft has stopped, or until ctx ends.
func (s *Seat) Removed(ctx context.Context, id string) error {
	return s.do(ctx, func() { s.remove(id) })
}

func (s *Seat) remove(id string) {
	r := s.Current()
	if r == nil || r.id != id {
		return
	}
	s.cfg.Self.Log.Info("no longer a voter", "raft", id, "next", "nothing")
	s.set(nil)
	err := r.stopInTime()
	if err == ErrDiskStalled {
		s.retired = true // the record would hang too
		s.cfg.Retired(err)
		return
	}
	if err != nil {
		s.cfg.Self.Log.Warn("raft did not stop cleanly", "error", err, "next", "check the disk of Dir")
	}
	if err := s.renew(); err != nil {
		s.cfg.Fail(err)
	}
}

// Restart ends a stuck Raft and starts another Raft on the same store. In memory
// no store outlives its Raft: the member takes a new generation and waits for an
// invitation. Restart does not wait. A restart that fails ends the node through
// Config.Fail.
func (s *Seat) Restart(r *Raft) {
	select {
	case s.work <- func() {
		if s.Current() != r {
			return
		}
		s.cfg.Self.Log.Warn("raft is stuck, restarting it", "raft", r.id, "next", "nothing, unless it happens again: report it then")
		s.set(nil)
		err := r.stop()
		if err == nil && s.cfg.Dir == "" {
			err = s.renew()
		} else if err == nil {
			err = s.Resume()
		}
		if err != nil {
			s.cfg.Fail(err)
		}
	}:
	default: // Run is far behind: a Raft that stays stuck asks again
	}
}

// check looks after the running Raft:
//
//   - A Raft with a failed or hung store, or with a parted FSM, is retired.
//   - The others are told whether this member votes.
//   - The servers that have left the configuration are forgotten.
//   - About a Raft without a leader, the Seat asks whether the ID was removed.
func (s *Seat) check(ctx context.Context) {
	r := s.Current()
	if r == nil {
		return
	}
	if err := r.table.Parted(); err != nil {
		s.retire(r, err)
		return
	}
	if err := r.store.Failed(); err != nil || r.store.StalledFor() > timing.StoreHung {
		if err == nil {
			err = ErrDiskStalled
		}
		s.retire(r, fmt.Errorf("raft store: %w", err))
		return
	}
	r.forgetLeft()
	votes := r.Votes()
	s.cfg.Advertise(func(m *member.Metadata) { m.Voter = votes })
	if r.LeaderID() != "" {
		s.orphan = time.Time{}
		return
	}
	if s.orphan.IsZero() {
		s.orphan = time.Now()
	}
	if time.Since(s.orphan) < timing.OrphanedVoter {
		return
	}
	// No leader speaks to this Raft. A leader that the node has found by itself
	// knows whether a leader ever will.
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	if s.cfg.AskRemoved(ctx, r.id) {
		s.remove(r.id)
	}
}

// retire ends a Raft because the disk failed, or because the FSM has parted from
// the other voters'. The member goes on, thin. Nobody knows whether the last write
// reached the disk, so the member votes no more under this ID: not in this
// process, and not after a restart unless the new generation could not be recorded.
func (s *Seat) retire(r *Raft, why error) {
	s.retired = true
	s.cfg.Retired(why)
	s.set(nil)
	s.cfg.Advertise(func(m *member.Metadata) { m.Generation, m.Voter = 0, false })
	// Not joined: a write that hangs for ever would keep the stop of the Raft,
	// and must not keep the node.
	go func() {
		r.stop()
		// The next start must not vote under this ID either. Not before the stop:
		// while the disk hangs, the record would hang with it, and every later change.
		if err := s.renew(); err != nil {
			s.cfg.Self.Log.Warn("failed raft store not retired for good", "error", err,
				"next", "repair the disk, and remove Dir before this process starts again")
		}
	}()
}
