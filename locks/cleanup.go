package locks

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// What a caller gave up the cluster must still hear of: a wait that was
// cancelled, a release that failed. Neither can wait for the caller, whose
// context has ended, nor be forgotten, since it would keep a key taken for as
// long as the session is beaten for.

// A debt is what the cluster has not yet heard.
type cleanup struct {
	keys        []string
	token       fence.Token   // to be released, or
	seq         uint64        // of the request to be withdrawn
	successor   string        // the client to release to, if it waits
	noSuccessor error         // why it was not released to that one
	upgraded    *grant        // what the request withdrawn was to upgrade
	done        chan struct{} // closed when the cluster has heard, or the session ended
}

// command is what tells the cluster.
func (d *cleanup) command(id machine.SessionID, seen []uint64) machine.Command {
	if d.token == 0 {
		return machine.Withdraw{Session: id, Seq: d.seq, Seen: seen}
	}
	return machine.Release{Session: id, Token: machine.Token(d.token), To: d.successor, Seen: seen}
}

// again reports whether what a command came to asks for another command, which it
// changes the debt to: where the key cannot be released to one, it is to whoever
// is next.
func (d *cleanup) retryWithoutSuccessor(out machine.Outcome, err error) bool {
	switch {
	case d.successor == "":
		return false
	case unknownToCluster(out, err):
		d.noSuccessor = ErrVersion
	case err != nil:
		return false
	case out.Code == machine.NoSuccessor:
		d.noSuccessor = ErrNoSuccessor
	default:
		return false
	}
	d.successor = ""
	return true
}

// maxCleaners bounds the debts that are told at the same time.
const maxCleanupWorkers = 16

// cleaning is a session's debts. It is guarded by the session's mu.
type cleanups struct {
	queue   []*cleanup            // nobody tells yet
	workers int                   // that tell one each
	byKey   map[string][]*cleanup // all unpaid
}

// cleanUp has the cluster told in the background, until it has heard or the
// session has ended, which frees everything.
func (s *session) startCleanup(d *cleanup) {
	s.mu.Lock()
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	d.done = make(chan struct{})
	cl := &s.cleanups
	cl.queue = append(cl.queue, d)
	if cl.byKey == nil {
		cl.byKey = make(map[string][]*cleanup)
	}
	for _, key := range d.keys {
		cl.byKey[key] = append(cl.byKey[key], d)
	}
	start := cl.workers < maxCleanupWorkers
	if start {
		cl.workers++
	}
	s.mu.Unlock()
	if start {
		s.c.goTask(s.runCleanups)
	}
}

// clean pays debts until there is none.
func (s *session) runCleanups() {
	for {
		s.mu.Lock()
		cl := &s.cleanups
		if len(cl.queue) == 0 {
			cl.workers--
			s.mu.Unlock()
			return
		}
		d := cl.queue[0]
		cl.queue = cl.queue[1:]
		s.mu.Unlock()

		s.applyCleanup(d)

		s.mu.Lock()
		for _, key := range d.keys {
			if rest := slices.DeleteFunc(cl.byKey[key], func(o *cleanup) bool { return o == d }); len(rest) > 0 {
				cl.byKey[key] = rest
			} else {
				delete(cl.byKey, key)
			}
		}
		s.mu.Unlock()
		close(d.done)
	}
}

// pay returns when the cluster has heard or the session has ended.
func (s *session) applyCleanup(d *cleanup) {
	s.awaitCancels()
	var retry backoff
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, grace(s.ttl))
		out, err := s.propose(ctx, func(seen []uint64) machine.Command { return d.command(s.id, seen) })
		cancel()
		switch {
		case d.retryWithoutSuccessor(out, err):
			continue
		case err != nil:
		case out.Code == machine.OK, out.Code == machine.NotHeld:
			if d.upgraded != nil && out.Token != 0 {
				s.mu.Lock()
				d.upgraded.raiseToken(out.Token)
				s.mu.Unlock()
			}
			return
		default:
			// The session is gone, or has asked for so much that the table
			// takes no more of it: it ends, and with it what it owes.
			s.lose(SessionExpired)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.c.trace.cleanupFailed(LockEvent{Key: d.keys[0], Token: d.token, Err: err})
		_ = retry.wait(s.ctx, s.ctx)
	}
}

// owes reports whether the release of a grant is among what is owed. The caller
// holds s.mu.
func (s *session) releaseIsPending(key string, token fence.Token) bool {
	return slices.ContainsFunc(s.cleanups.byKey[key], func(d *cleanup) bool { return d.token == token })
}

// awaitDebts waits until the cluster has heard what this client owes it for keys:
// a new request must not meet the remains of an earlier one.
func (s *session) awaitCleanups(ctx context.Context, keys []string) error {
	var debts []*cleanup
	s.mu.Lock()
	if len(s.cleanups.byKey) > 0 {
		for _, key := range keys {
			debts = append(debts, s.cleanups.byKey[key]...)
		}
	}
	s.mu.Unlock()
	for _, d := range debts {
		select {
		case <-d.done:
		case <-s.ctx.Done():
			return nil
		case <-s.c.closing.Done():
			return ErrClosed
		case <-ctx.Done():
			return s.c.whyEnded(ctx)
		}
	}
	return nil
}
