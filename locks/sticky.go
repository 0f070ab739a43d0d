package locks

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// kept is a key of the option Sticky, a grant of the cluster that gives the session one
// lock after another. A kept is in session.kept while no lock holds the key, and belongs to the
// lock's grant otherwise. See doc.go, "Sticky keys".
type kept struct {
	key   string
	seq   uint64      // of the request, as the cluster knows it
	token fence.Token // of the cluster's grant
	meta  string      // of the option Meta, encoded; the cluster's grant also has the entries of Trace.Acquiring
	value string      // left by an earlier holder
	block uint16      // the length of the block that was asked for

	// Guarded by the session's mu.
	next   fence.Token // of the next lock
	last   fence.Token // of the block: no lock of the block has a larger token
	after  tokens      // the block to come: see extend
	asked  bool        // for the block to come
	ending bool        // the context of the last lock may not have ended yet
}

// tokens is a block of tokens; zero: none.
type tokens struct{ first, last fence.Token }

// turn begins the block to come, if the present one is used up. Without a token left turn
// returns false. The caller holds s.mu.
func (k *kept) turn() bool {
	if k.next > k.last && k.after != (tokens{}) {
		k.next, k.last, k.after, k.asked = k.after.first, k.after.last, tokens{}, false
	}
	return k.next <= k.last
}

// wantsMore reports whether it is time to ask for the block to come, and notes that it was
// asked for. The caller holds s.mu.
func (k *kept) wantsMore() bool {
	if left := k.last + 1 - k.next; k.asked || left > fence.Token(k.block)/2 {
		return false
	}
	k.asked = true
	return true
}

const (
	maxKept    = 10_000 // keys of a session without a lock
	firstBlock = 16     // tokens of a key's first block; the next block is twice as long
)

// newKept returns the kept key of the grant that out reports, for the request of w.
func newKept(w *waiter, out machine.Outcome) *kept {
	return &kept{
		key:   w.key,
		seq:   w.seq,
		token: fence.Token(out.Token),
		meta:  w.meta,
		value: out.Value,
		block: w.cmd.Block,
		next:  fence.Token(out.Token) + 1,
		last:  fence.Token(out.Token) + fence.Token(out.Block),
	}
}

// reacquire makes a lock of req's key if the client keeps the key, without asking the
// cluster, and returns nil otherwise: then the request goes the way of all requests.
func (c *Client) reacquire(ctx, parent context.Context, req *acquireRequest) *Lock {
	s := c.currentSession()
	if s == nil {
		return nil
	}
	l, more := s.reacquire(ctx, parent, req)
	if more != nil {
		c.goTask(func() { s.extend(more) })
	}
	return l
}

// reacquire is Client.reacquire. The clocks are read with s.mu held, so that no end of the
// session comes in between. If more is not nil, the caller starts extend for it.
func (s *session) reacquire(ctx, parent context.Context, req *acquireRequest) (l *Lock, more *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[req.key]
	if k == nil || k.ending || k.meta != req.meta || s.refusal() != nil || !k.turn() {
		return nil, nil
	}
	now, began := s.c.readClocks()
	if s.trust.remaining(now) <= 0 {
		return nil, nil
	}
	if req.began.IsZero() { // without Trace.Acquiring
		req.began = began
	}
	delete(s.kept, k.key)
	g := newGrant()
	*g = grant{
		s:          s,
		lock:       g.lock,
		key:        k.key,
		seq:        k.seq,
		since:      began,
		firstToken: k.token, // the cluster knows the lineage by its own token
		token:      k.next,
		mode:       machine.Exclusive,
		call:       req.call,
		lazy:       true,
		sticky:     true,
		kept:       k,
	}
	k.next++
	if parent == nil {
		parent, g.lock.bare = ctx, true
	}
	s.addGrant(g, parent, req)
	if k.value != "" {
		g.ensureRare().value = k.value
	}
	s.noteGranted(g, req)
	if now.at.Add(sleepCheck).Before(s.nextCheck) {
		select { // from now on, run must read the clocks more often
		case s.wakeup <- struct{}{}:
		default:
		}
	}
	if k.wantsMore() {
		return g.lock, k
	}
	return g.lock, nil
}

// extend asks the cluster for the block that follows the present one, while the locks of the
// present one go on: a caller waits for the cluster only if the cluster takes longer than the
// second half of a block. On failure, and if the cluster has no tokens to spare or another
// request has come for the key, the block that is used up makes the next request ask anew.
func (s *session) extend(k *kept) {
	ctx, cancel := context.WithTimeout(s.ctx, grace(s.ttl))
	defer cancel()
	s.mu.Lock()
	cmd := machine.Extend{Session: s.id, Token: machine.Token(k.token), Last: machine.Token(k.last), Block: min(2*uint32(k.block), machine.MaxBlock)}
	s.mu.Unlock()
	out, err := s.propose(ctx, func(seen []uint64) machine.Command {
		cmd.Seen = seen
		return cmd
	})
	if err != nil || out.Code != machine.OK || out.Block == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// If the key was given back meanwhile, nobody has the kept key, and nobody uses the block.
	k.block = uint16(cmd.Block)
	k.after = tokens{fence.Token(out.Token) + 1, fence.Token(out.Token) + fence.Token(out.Block)}
}

// keep keeps the key of g, whose lock was released, unless another request waits for the
// key. With ending, the lock's context is about to end: until then nobody gets the next
// lock. The caller holds s.mu.
func (s *session) keep(g *grant, ending bool) bool {
	if g.kept == nil || g.contended || g.asked || s.refusal() != nil || len(s.kept) >= maxKept {
		return false
	}
	g.kept.ending = ending
	s.kept[g.key] = g.kept
	return true
}

// forgetKept forgets a key that the session keeps under the request seq, and returns it, or
// nil. The caller holds s.mu.
func (s *session) forgetKept(key string, seq uint64) *kept {
	k := s.kept[key]
	if k == nil || k.seq != seq {
		return nil
	}
	delete(s.kept, key)
	return k
}

// unlockAndGiveBack unlocks s.mu, held by the caller, and handles a notice about a grant
// without a lock: somebody wants a key that the session keeps, or that it is about to
// release.
func (s *session) unlockAndGiveBack(e machine.Event) {
	if k := s.forgetKept(e.Key, e.Seq); k != nil {
		d := k.giveBack()
		s.cleanups.register(d)
		s.unlockAndSend([]*cleanup{d})
		return
	}
	s.unlockAndSend(s.cleanups.removeLazy(func(d *cleanup) bool { return machine.Token(d.token) == e.Token }))
}

// giveBack returns the release of k.
func (k *kept) giveBack() *cleanup {
	return &cleanup{ctx: context.Background(), call: CallAcquire, keys: []string{k.key}, token: k.token}
}

// takeKept removes the keys that the session keeps and that w asks the cluster for, those
// below a tree included, and returns their releases, to go with the request. If w is for a
// sticky key, takeKept also says how many tokens to ask for. The caller holds s.mu.
func (s *session) takeKept(w *waiter, keys []string, load *freedLoad) (taken []*cleanup) {
	sticky := w.options&optSticky != 0
	if sticky {
		w.cmd.Block = firstBlock
	}
	if len(s.kept) == 0 {
		return nil
	}
	take := func(k *kept) {
		d := k.giveBack()
		if !load.add(d) {
			return // the cluster recalls the key
		}
		delete(s.kept, k.key)
		s.cleanups.register(d)
		d.carried++
		taken = append(taken, d)
	}
	for _, key := range keys {
		k := s.kept[key]
		if k == nil {
			continue
		}
		if sticky {
			w.cmd.Block = k.block
			if k.next > k.last {
				w.cmd.Block = min(2*k.block, machine.MaxBlock)
			}
		}
		take(k)
	}
	if w.cmd.Tree {
		for _, k := range s.kept {
			if isBelow(k.key, keys) {
				take(k)
			}
		}
	}
	return taken
}

// isBelow reports whether the tree of one of keys has key.
func isBelow(key string, keys []string) bool {
	for i := range key {
		if key[i] != '/' {
			continue
		}
		if _, found := slices.BinarySearch(keys, key[:i]); found {
			return true
		}
	}
	return false
}
