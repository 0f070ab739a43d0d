package locks

import (
	"maps"
	"slices"
	"time"
)

// BeforeNext registers f, to be called when the lock is lost, before the key is granted
// to anybody else. BeforeNext is for effects that do not end with a context: a child
// process to kill, a device to switch off. f runs in a goroutine of its own as soon as
// the lock's context has ended, and at most once. f does not run when the lock is
// released.
//
// After Client.Break, Client.EndSession and Client.Close the cluster hears of the
// end of the lock when f has returned, or five seconds later at the latest; or a TTL
// later, if the TTL is shorter. If the trust has ended, because no beat was confirmed in
// time, f has a quarter of the TTL, or 100 ms and 1 % of the TTL if that is less: the
// cluster then does not wait for f. Work that needs more time in that case begins
// earlier, by Remaining.
//
// f must not call the client's Close, which waits for f. If the lock has ended, f is not
// called, and the error is Err's.
func (l *Lock) BeforeNext(f func()) error {
	if f == nil {
		return configError("f", "nil")
	}
	if err := l.Err(); err != nil {
		return err
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	x := l.g.ensureRare()
	x.hooks = append(x.hooks, &lossHook{lock: l, f: f, done: make(chan struct{})})
	return nil
}

// lossHook is a function of BeforeNext.
type lossHook struct {
	lock *Lock
	f    func()
	done chan struct{} // closed when f has returned
}

// start runs f in the background. Close waits for f.
func (h *lossHook) start() {
	s := h.lock.g.s
	s.c.goTask(func() {
		defer func() {
			s.mu.Lock()
			delete(s.hooks, h)
			s.mu.Unlock()
			close(h.done)
		}()
		h.f()
	})
}

// endHooks removes the hooks of l, which has ended for the given cause. If l is lost,
// endHooks appends to cancels the functions that start them. The caller holds the
// session's mu.
func (l *Lock) endHooks(cause error, cancels []func()) []func() {
	if len(l.g.rare().hooks) == 0 {
		return cancels
	}
	_, lost := cause.(*LostError)
	l.g.rare().hooks = slices.DeleteFunc(l.g.rare().hooks, func(h *lossHook) bool {
		if h.lock == l && lost {
			l.g.s.hooks[h] = struct{}{}
			cancels = append(cancels, h.start)
		}
		return h.lock == l
	})
	return cancels
}

// awaitHooks waits until the hooks of the session's lost locks have returned, but not for
// longer than a message to the cluster may take. The cluster is told of the end of a lock
// after that. Not unbounded: a hook that hangs would keep the key taken for as long as
// the process lives, and Break is for such a process.
func (s *session) awaitHooks() {
	s.mu.Lock()
	hooks := slices.Collect(maps.Keys(s.hooks))
	s.mu.Unlock()
	awaitDone(hooks, grace(s.ttl))
}

// hooksOf returns the hooks of the lost locks of the grant with the given seq that have
// not returned. The caller holds s.mu.
func (s *session) hooksOf(seq uint64) (hooks []*lossHook) {
	for h := range s.hooks {
		if h.lock.g.seq == seq {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// awaitDone waits until the hooks have returned, or for d at most.
func awaitDone(hooks []*lossHook, d time.Duration) {
	if len(hooks) == 0 {
		return
	}
	limit := time.NewTimer(d)
	defer limit.Stop()
	for _, h := range hooks {
		select {
		case <-h.done:
		case <-limit.C:
			return
		}
	}
}
