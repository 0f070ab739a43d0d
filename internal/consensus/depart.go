package consensus

import (
	"context"
	"fmt"
	"strconv"

	"github.com/wardmote/wardmote/internal/identity"
)

// Depart ends this member's part in the consensus of its present cluster for good:
// the Raft stops, the leadership with the Raft, and the member takes a new
// generation, because no store of one cluster may vote in another. A store in Dir
// is moved aside, never deleted.
//
// With promise, the member also promises never to vote in the cluster again: the
// record keeps the promise, so Invited refuses and no later start resumes the
// store, even if the process crashes at any moment in between. The promise comes
// first. In the opposite order, a crash after the Raft's end and before the
// promise would bring the voter back after somebody was told that the voter has
// gone.
//
// The promise names the newest entry of the store, which may make the member the heir of the
// table. So the store is settled first: an unflushed entry could be lost with the host after
// it was named.
//
// Depart is idempotent. It returns when raft's Shutdown has returned, and blocks
// for as long as the disk hangs, or until ctx ends. After an error the Raft may
// have ended all the same; a second call finishes.
func (s *Seat) Depart(ctx context.Context, promise bool) error {
	var failed error
	if err := s.do(ctx, func() { failed = s.depart(promise) }); err != nil {
		return err // Run may write failed still
	}
	return failed
}

func (s *Seat) depart(promise bool) error {
	r := s.Current()
	if promise {
		if r != nil {
			if err := r.store.Settle(); err != nil {
				return fmt.Errorf("cluster: no promise on a store that cannot be flushed: %w", err)
			}
		}
		err := s.cfg.Record.Update(func(rec *identity.Record) {
			if rec.Founding == nil || rec.RetiredHere() {
				return
			}
			rec.Retired = identity.Retirement{Cluster: rec.Founding.Cluster, Voted: rec.Stored}
			if r != nil {
				rec.Retired.Term, rec.Retired.Index = r.lastEntry()
				rec.Retired.Voters = r.Voters()
			}
		})
		if err != nil {
			return err
		}
	}
	if r != nil {
		s.set(nil)
		if err := r.stop(); err != nil {
			s.cfg.Self.Log.Warn("raft did not stop cleanly", "error", err, "next", "check the disk of Dir")
		}
		last := s.cfg.LastToken(r.table) // nothing is applied any more
		if err := s.cfg.Record.Update(func(rec *identity.Record) {
			rec.Token = max(rec.Token, last)
			if promise && rec.RetiredHere() {
				// The log may have grown until the end of raft, and the voter with
				// the newest log is the heir.
				rec.Retired.Term, rec.Retired.Index = r.lastEntry()
			}
		}); err != nil {
			return err
		}
	}
	return s.finishDeparture(s.cfg.Record.Get())
}

// finishDeparture takes a new generation if a store of the present one was in use.
// Without one in use, a store in Dir is of a departure or a removal that a crash cut
// short between the new generation and the move. The store is moved now, under the
// name of its own cluster: once the record names a successor, nobody could tell
// whose store it is, and the heir would begin with an empty table.
func (s *Seat) finishDeparture(rec identity.Record) error {
	if !rec.Stored {
		return s.setAside(rec)
	}
	return s.renew()
}

// lastEntry returns the term and the index of the newest entry in the log.
func (r *Raft) lastEntry() (term, index uint64) {
	stats := r.raft.Stats()
	term, _ = strconv.ParseUint(stats["last_log_term"], 10, 64)
	index, _ = strconv.ParseUint(stats["last_log_index"], 10, 64)
	return term, index
}
