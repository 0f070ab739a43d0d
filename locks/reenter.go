package locks

import (
	"context"

	"github.com/wardmote/wardmote/internal/machine"
)

// How an owner enters again a key that it holds: see the option Reentrant. The
// cluster knows of one request and one grant; all else happens here.

// MaxDepth is how many locks of one key an owner may hold at a time.
const MaxDepth = 1 << 16

// entryName names what an owner has of a key.
type ownerEntryName struct{ key, owner string }

// entry is what an owner has of a key, or is asking for.
type ownerEntry struct {
	name ownerEntryName
	mode machine.Mode
	of   uint32
	tree bool

	// Guarded by the session's mu.
	grant    *grant // nil while it is asked for
	locks    map[*Lock]struct{}
	resolved chan struct{} // closed when g is set, or asking has failed
}

// enter acquires req's key for its owner, or enters it again.
func (s *session) acquireReentrant(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	name := ownerEntryName{req.key, req.owner}
	for {
		if !s.alive() {
			return nil, errNoSession
		}
		s.mu.Lock()
		if s.draining || s.reason != 0 {
			closed := s.draining
			s.mu.Unlock()
			if closed {
				return nil, ErrClosed
			}
			return nil, errNoSession
		}
		e := s.entries[name]
		if e == nil {
			e = &ownerEntry{name: name, mode: req.cmd.Mode, of: req.cmd.Of, tree: req.cmd.Tree, resolved: make(chan struct{})}
			s.entries[name] = e
			s.mu.Unlock()
			l, err := s.acquireNew(ctx, parent, req)
			s.resolveEntry(e, l)
			return l, err
		}
		l, err := e.addLock(s.c, parent, &req)
		s.mu.Unlock()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-e.resolved:
		case <-s.ctx.Done():
		case <-s.c.closing.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, callError("acquire", req.key, s.c.whyEnded(ctx))
		}
	}
}

// settle ends the asking for e, which came to l.
func (s *session) resolveEntry(e *ownerEntry, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != nil && l.ended == nil {
		e.grant, e.locks = l.g, map[*Lock]struct{}{l: {}}
		l.g.ensureRare().entry = e
	} else {
		delete(s.entries, e.name)
	}
	close(e.resolved)
}

// again enters e once more. It returns neither lock nor error if the key is still
// being asked for. The caller holds the session's mu.
func (e *ownerEntry) addLock(c *Client, parent context.Context, req *acquireRequest) (*Lock, error) {
	switch {
	case e.mode != req.cmd.Mode || e.of != req.cmd.Of || e.tree != req.cmd.Tree:
		return nil, configError("Reentrant", "owner %q holds or asks for %q in another mode", req.owner, req.key)
	case e.grant == nil && req.cmd.Try:
		// To join the others would be to wait, to ask beside them to compete
		// with oneself.
		return nil, &HeldError{Key: req.key, Client: c.name(), Node: c.rep.Member()}
	case e.grant == nil:
		return nil, nil
	case len(e.locks) >= MaxDepth:
		return nil, configError("Reentrant", "owner %q has entered %q %d times", req.owner, req.key, MaxDepth)
	}
	l := &Lock{g: e.grant, parent: parent}
	e.locks[l] = struct{}{}
	return l, nil
}

// Depth returns how many locks of the grant are held by its owner, this one
// included: 1 for a lock acquired without Reentrant. Of a lock that was released
// it returns how many were left then, so that 0 says it was the last and freed the
// key; of one that was lost, 0.
func (l *Lock) Depth() int {
	if l.zero() {
		return 0
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ended != nil {
		return l.depthLeft
	}
	return l.g.depth()
}
