package locks

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// A caller may give up a wait, or fail to release a grant. The cluster must
// still be told. The caller cannot wait, since the caller's context has ended;
// and the client must not forget, since the key would stay taken for as long as
// the session's beats arrive. So each session tells the cluster in the
// background.

// cleanup is a command to free a grant or withdraw a request of this client.
type cleanup struct {
	keys        []string
	token       fence.Token   // the grant to release; 0: withdraw seq
	seq         uint64        // the request to withdraw
	successor   string        // if not empty: release to this client, if it waits
	noSuccessor error         // why there was no release to successor
	upgraded    *grant        // the grant that the withdrawn request was to upgrade
	done        chan struct{} // closed when the cluster has answered or the session has ended
}

// command returns the command to propose.
func (d *cleanup) command(id machine.SessionID, seen []uint64) machine.Command {
	if d.token == 0 {
		return machine.Withdraw{Session: id, Seq: d.seq, Seen: seen}
	}
	return machine.Release{Session: id, Token: machine.Token(d.token), To: d.successor, Seen: seen}
}

// retryWithoutSuccessor reports whether the release must be sent again without
// a successor, because that client was not waiting or a member does not know of
// successors. If so, retryWithoutSuccessor clears d.successor and keeps the
// reason in d.noSuccessor.
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

// maxCleanupWorkers bounds the concurrent cleanups of a session.
const maxCleanupWorkers = 16

// cleanups are the unanswered cleanups of a session, guarded by the session's
// mu.
type cleanups struct {
	queue   []*cleanup            // not yet taken by a worker
	workers int                   // goroutines that run runCleanups
	byKey   map[string][]*cleanup // by each of their keys, queued and running
}

// startCleanup sends d in the background, until the cluster has answered or the
// session has ended. The end of the session frees everything.
func (s *session) startCleanup(d *cleanup) {
	s.mu.Lock()
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	d.done = make(chan struct{})
	cl := &s.cleanups
	cl.queue = append(cl.queue, d)
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

// runCleanups applies the cleanups of the queue, until the queue is empty.
func (s *session) runCleanups() {
	cl := &s.cleanups
	s.mu.Lock()
	for len(cl.queue) > 0 {
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
		close(d.done)
	}
	cl.workers--
	s.mu.Unlock()
}

// applyCleanup sends d, again after each failure, and returns when the cluster
// has answered or the session has ended.
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
			// The session is gone in the cluster, or has too many requests for
			// the table. The session ends, and so do the session's cleanups.
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

// releaseIsPending reports whether a cleanup is about to release the grant of
// key with the given token. The caller holds s.mu.
func (s *session) releaseIsPending(key string, token fence.Token) bool {
	return slices.ContainsFunc(s.cleanups.byKey[key], func(d *cleanup) bool { return d.token == token })
}

// awaitCleanups waits until the cluster has answered all of this session's
// cleanups for keys: a new request must not meet the remains of an earlier one.
func (s *session) awaitCleanups(ctx context.Context, keys []string) error {
	var pending []*cleanup
	s.mu.Lock()
	for _, key := range keys {
		pending = append(pending, s.cleanups.byKey[key]...)
	}
	s.mu.Unlock()
	for _, d := range pending {
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
