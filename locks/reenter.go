package locks

import (
	"context"

	"github.com/wardmote/wardmote/internal/machine"
)

// This file implements the option Reentrant. The cluster knows of one request
// and one grant for an owner; the rest happens here.

// MaxDepth is the largest number of locks of a key for an owner at a time.
const MaxDepth = 1 << 16

// ownerEntryName identifies an ownerEntry.
type ownerEntryName struct{ key, owner string }

// grantMode is how a request holds its key. All calls of an owner must agree on it.
type grantMode struct {
	mode  machine.Mode
	n, of uint16 // of permits
	tree  bool
}

func modeOf(req *acquireRequest) grantMode {
	return grantMode{mode: req.cmd.Mode, n: req.cmd.N, of: req.cmd.Of, tree: req.cmd.Tree}
}

// ownerEntry is an owner's grant of a key, or the owner's request.
type ownerEntry struct {
	name ownerEntryName
	mode grantMode

	// Guarded by the session's mu.
	grant    *grant // nil while the request waits
	locks    map[*Lock]struct{}
	resolved chan struct{} // closed when grant is set or the request has failed
}

// acquireReentrant acquires req's key for its owner, or adds a lock to the
// owner's present grant.
func (s *session) acquireReentrant(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	name := ownerEntryName{req.key, req.owner}
	for {
		if !s.alive() {
			return nil, errNoSession
		}
		s.mu.Lock()
		if err := s.refusal(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		e := s.entries[name]
		if e == nil {
			e = &ownerEntry{name: name, mode: modeOf(&req), resolved: make(chan struct{})}
			s.entries[name] = e
			s.mu.Unlock()
			return s.acquireForOwner(ctx, parent, e, req)
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

// acquireForOwner makes e's request. e is resolved in any case, also if a function of
// the Trace or of ctx panics: other calls of the owner wait for e.
func (s *session) acquireForOwner(ctx, parent context.Context, e *ownerEntry, req acquireRequest) (l *Lock, err error) {
	defer func() { s.resolveEntry(e, l) }()
	req.tracing.begin(&req)
	return s.acquireNew(ctx, parent, req)
}

// resolveEntry records the result of e's request: the lock l, or nil if the
// request failed.
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

// addLock adds a lock to e's grant. If e's request still waits, both results
// are nil. The caller holds the session's mu.
func (e *ownerEntry) addLock(c *Client, parent context.Context, req *acquireRequest) (*Lock, error) {
	switch {
	case e.mode != modeOf(req):
		return nil, configError("Reentrant", "owner %q holds or asks for %q in another mode", req.owner, req.key)
	case e.grant == nil && req.cmd.Try:
		// Joining e's request would mean to wait, and a second request would
		// compete with the owner's first.
		return nil, &HeldError{Key: req.key, Client: c.name(), Node: c.rep.Member()}
	case e.grant == nil:
		return nil, nil
	case len(e.locks) >= MaxDepth:
		return nil, configError("Reentrant", "owner %q holds %q %d times already", req.owner, req.key, MaxDepth)
	}
	l := &Lock{g: e.grant, parent: parent}
	e.locks[l] = struct{}{}
	return l, nil
}

// Depth returns the number of the owner's locks on the grant, this lock
// included: 1 for a lock acquired without Reentrant. For a released lock, Depth
// returns the number of locks left at the release, with 0 for a release that
// freed the key. For a lost lock, Depth returns 0.
func (l *Lock) Depth() int {
	return readGrant(l, func(g *grant) int {
		if l.ended != nil {
			return l.depthLeft
		}
		return g.depth()
	})
}
