package locks

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// This file implements the option Lazy. A lazy release ends the lock here, as any release
// does, and leaves the message to the cluster for a moment: the client's next Acquire takes
// the release along, in the same command and so in the same entry of the log. A cycle of
// Acquire and Release then costs one entry instead of two.
//
// The delay costs time and never exclusion: the holder has stopped before the release is
// noted, and the cluster grants the key to nobody until it has heard. The time is bounded
// by lazyWait, and there is none where another request is known to wait:
//
//   - a release of a contended grant, and of one that Ask has asked for, is sent at once;
//   - so is a noted release as soon as the cluster tells of a waiter for the key;
//   - any other is sent after lazyWait, unless a request has taken it along before.
//
// From then on the release is a cleanup like the release of a caller that gave up: sent
// again until the cluster has answered or the session has ended. So is a release that went
// with a request without an answer. A second copy of a release frees nothing, because a
// release names its grant. So a request for the key does not wait for a release that another
// request has taken along: the request takes the release along too, and meets the key free
// whichever of the two comes first. A lost session, Close, and the death of the process free
// the key as they free a held one.

// lazyWait bounds how long a release waits for a request of the client.
const lazyWait = time.Millisecond

// releaseLater notes d, the release of a grant whose locks have ended, and returns.
func (s *session) releaseLater(d *cleanup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != 0 {
		return // the end of the session frees everything
	}
	cl := &s.cleanups
	d.since = s.c.clock.Now()
	cl.note(d)
	if cl.lazyDue.IsZero() {
		cl.lazyDue = d.since.Add(lazyWait)
		select {
		case s.wakeup <- struct{}{}: // run waits for lazyDue now
		default:
		}
	}
}

// sendLazy sends the releases that have waited for lazyWait at now.
func (s *session) sendLazy(now time.Time) {
	s.mu.Lock()
	cl := &s.cleanups
	if cl.lazyDue.IsZero() || now.Before(cl.lazyDue) {
		s.mu.Unlock()
		return
	}
	cl.lazyDue = time.Time{}
	due := cl.removeLazy(func(d *cleanup) bool { return !now.Before(d.since.Add(lazyWait)) })
	if len(cl.lazy) > 0 {
		cl.lazyDue = cl.lazy[0].since.Add(lazyWait)
	}
	s.unlockAndSend(due)
}

// unlockAndSend unlocks s.mu, held by the caller, and sends list, which is registered, in
// the background.
func (s *session) unlockAndSend(list []*cleanup) {
	start := 0
	for _, d := range list {
		if s.reason != 0 { // the end of the session frees everything
			s.cleanups.settle(d)
		} else if s.cleanups.enqueue(d) {
			start++
		}
	}
	s.mu.Unlock()
	for range start {
		s.c.goTask(s.runCleanups)
	}
}

// note registers d and adds d to the noted releases.
func (cl *cleanups) note(d *cleanup) {
	cl.register(d)
	d.noted = true
	cl.lazy = append(cl.lazy, d)
}

// removeLazy removes the chosen releases from the noted ones and returns them.
func (cl *cleanups) removeLazy(chosen func(*cleanup) bool) (removed []*cleanup) {
	if len(cl.lazy) == 0 {
		return nil
	}
	cl.lazy = slices.DeleteFunc(cl.lazy, func(d *cleanup) bool {
		if !chosen(d) {
			return false
		}
		d.noted = false
		removed = append(removed, d)
		return true
	})
	return removed
}

// goesAlong reports whether a request can take d along: a noted release, or one that other
// requests have taken along and the cluster has not answered yet.
func (d *cleanup) goesAlong() bool { return d.noted || d.carried > 0 }

// canTake reports whether a request for keys need not wait for earlier cleanups of them:
// there are none, or all of them can go with the request.
func (cl *cleanups) canTake(keys []string) bool {
	if len(cl.byKey) == 0 {
		return true
	}
	var load freedLoad
	for _, key := range keys {
		for d := range cl.byKey[key] {
			if !d.goesAlong() || !load.add(d) {
				return false
			}
		}
	}
	return true
}

// chooseLazy returns the releases of keys that go with a request for them. The caller adds
// what else must go with the request before takeLazy fills the rest.
func (cl *cleanups) chooseLazy(keys []string, load *freedLoad) map[*cleanup]struct{} {
	if len(cl.byKey) == 0 {
		return nil
	}
	own := make(map[*cleanup]struct{})
	for _, key := range keys {
		for d := range cl.byKey[key] {
			if _, again := own[d]; d.goesAlong() && !again && load.add(d) {
				own[d] = struct{}{}
			}
		}
	}
	return own
}

// takeLazy returns the chosen releases, and the oldest noted ones of other keys as far as a
// command has room, for a request to take along.
func (cl *cleanups) takeLazy(own map[*cleanup]struct{}, load *freedLoad) (taken []*cleanup) {
	for d := range own {
		if !d.noted {
			taken = append(taken, d)
		}
	}
	taken = append(taken, cl.removeLazy(func(d *cleanup) bool {
		_, is := own[d]
		return is || load.add(d)
	})...)
	for _, d := range taken {
		d.carried++
	}
	return taken
}

// freedLoad counts the releases that go with a command.
type freedLoad struct{ grants, keys int }

// add counts d, or returns false if the command has no room for d.
func (l *freedLoad) add(d *cleanup) bool {
	if l.grants == machine.MaxFreed || l.keys+len(d.keys) > machine.MaxFreedKeys {
		return false
	}
	l.grants++
	l.keys += len(d.keys)
	return true
}

// freedTokens returns the Freed list of the command that takes list along.
func freedTokens(list []*cleanup) (tokens []machine.Token) {
	for _, d := range list {
		tokens = append(tokens, machine.Token(d.token))
	}
	return tokens
}

// noteFreed handles the answer to a command that has taken list along. Releases that the
// cluster may not have done are sent by themselves.
func (s *session) noteFreed(list []*cleanup, out machine.Outcome, err error) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	for _, d := range list {
		d.carried--
	}
	if err != nil || out.Code == machine.BadCommand || out.Code == machine.WrongFormat || out.Code == machine.NoSession {
		s.unlockAndSend(slices.DeleteFunc(list, func(d *cleanup) bool { return d.settled || d.carried > 0 }))
		return
	}
	for _, d := range list {
		s.cleanups.settle(d)
	}
	s.mu.Unlock()
}
