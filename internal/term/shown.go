package term

import (
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// shown is what a subscriber has shown of sessions, guarded by Term.mu.
//
// The sessions are counted as bytes of the peer's, but for keysTogether of each set: so many
// keys a stream may show whatever others do. While the bound is full, a key of a session that
// is not open is not kept, and its Open is refused as CodeBusy. A key of an open session of
// the subscriber's own process is always kept: without it the session would be lost. The table
// bounds these sessions, and displace the streams on which they are kept beyond the bound.
type shown struct {
	open  sessionSet // were open when the key was shown or used
	fresh sessionSet // were not; at most wire.MaxAttach
	left  sessionSet // open, but detached by their owner; at most wire.MaxAttach
	sweep int        // with so many in open, the ended ones are forgotten

	signer    string    // of the stream's session keys; "": none has proved to be
	joined    uint64    // the number of the Join
	beyond    bool      // open has keys beyond the bound
	swept     time.Time // the last sweep of a stream beyond the bound
	displaced bool      // the stream is about to end for a newer one

	lacked bool                 // a key found no room: what was not kept is no theft
	keep   func(bytes int) bool // Subscriber.Keep
	kept   int                  // bytes
}

type sessionSet = fitMap[machine.SessionID, struct{}]

const (
	keysTogether = 256 // are counted together
	keyBytes     = 64
	mostBeyond   = 4 // streams of a process with keys beyond the bound
)

func newShown(keep func(bytes int) bool, joined uint64) *shown {
	if keep == nil {
		keep = func(int) bool { return true }
	}
	return &shown{sweep: wire.MaxAttach, keep: keep, joined: joined}
}

// counted returns how many keys of a set count.
func counted(s *sessionSet) int {
	return max(0, (s.peak-1)/keysTogether) * keysTogether
}

// count has the budget count all sessions, and reports false if more do not fit.
func (k *shown) count() bool {
	bytes := (counted(&k.open) + counted(&k.fresh) + counted(&k.left)) * keyBytes
	if bytes != k.kept && !k.keep(bytes) {
		return false
	}
	k.kept, k.beyond = bytes, false
	return true
}

// remember adds a session to fresh or left, and reports false if there is no room.
func (k *shown) remember(in *sessionSet, id machine.SessionID) bool {
	if in.has(id) {
		return true
	}
	if in.len() >= wire.MaxAttach {
		return false
	}
	peak, before := in.peak, counted(in)
	in.set(id, struct{}{})
	if counted(in) == before || k.count() {
		return true
	}
	in.delete(id)
	in.peak = min(in.peak, peak)
	return false
}

// drop removes a session from a set.
func (k *shown) drop(from *sessionSet, id machine.SessionID) {
	before := counted(from)
	if from.delete(id); counted(from) < before {
		k.count()
	}
}

// hasRoom reports whether the key of a session that is not open was kept if it was shown.
func (k *shown) hasRoom() bool { return !k.lacked && k.fresh.len() < wire.MaxAttach }

func (k *shown) has(id machine.SessionID) bool { return k.open.has(id) || k.fresh.has(id) }

// leave forgets a session that its owner has detached. A request of the owner may be
// under way beside the Detach, of a session that could not be closed: for the owner
// such a session is over, and the request is no theft.
func (k *shown) leave(id machine.SessionID, open bool) {
	k.drop(&k.open, id)
	k.drop(&k.fresh, id)
	if open && !k.remember(&k.left, id) {
		k.lacked = true
	}
}

// opened notes that the session of a shown key is open, and the process's own.
func (k *shown) opened(id machine.SessionID) {
	k.drop(&k.fresh, id)
	k.drop(&k.left, id)
	if k.open.has(id) {
		return
	}
	before := counted(&k.open)
	k.open.set(id, struct{}{})
	if counted(&k.open) > before && !k.count() {
		// The bound does not see these any more: the ended ones must not pile up.
		k.beyond, k.sweep = true, min(k.sweep, k.open.len())
	}
}

// displace returns a stream that must end, nil if none must: the oldest of the process, if too
// many of its streams have keys beyond the bound. A process is known by the key that seals its
// session keys, with TLS: whoever takes its name and boot has another one. The caller holds t.mu.
func (t *Term) displace(s *Subscriber) (oldest *Subscriber) {
	own := t.subscribers[s]
	if own == nil || !own.beyond {
		return nil
	}
	n := 0
	for o, k := range t.streamsOf(s) {
		if k.signer != own.signer || !k.beyond || k.displaced || o.Stop == nil {
			continue
		}
		if n++; oldest == nil || k.joined < t.subscribers[oldest].joined {
			oldest = o
		}
	}
	if n <= mostBeyond {
		return nil
	}
	t.subscribers[oldest].displaced = true
	return oldest
}

// sweepBeyond forgets the ended sessions of one stream beyond the bound, if the last sweep was a
// while ago: no bound counts them.
func (t *Term) sweepBeyond(now time.Time) {
	t.mu.Lock()
	var next *Subscriber
	var first *shown
	for s, k := range t.subscribers {
		if k.beyond && now.Sub(k.swept) >= timing.SweepBeyond && (first == nil || k.swept.Before(first.swept)) {
			next, first = s, k
		}
	}
	if next != nil {
		first.swept, first.sweep = now, 0
	}
	t.mu.Unlock()
	if next != nil {
		t.sweepShown(next)
	}
}

// proved notes the key that seals the session keys of s.
func (t *Term) proved(s *Subscriber, signer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.subscribers[s]; k != nil {
		k.signer = string(signer)
	}
}

// sweepShown forgets the ended sessions that s has shown, when there are many. An ended session stays
// until Detach: late requests of its client may be on their way, and are no theft. Without
// the sweep, a member that never detaches would fill the memory with sessions of the past.
// The table is read without Term.mu, for which beats would wait.
func (t *Term) sweepShown(s *Subscriber) {
	t.mu.Lock()
	k := t.subscribers[s]
	if k == nil || k.open.len() < k.sweep {
		t.mu.Unlock()
		return
	}
	k.sweep = 2 * k.open.len()
	ids := slices.Collect(maps.Keys(k.open.m))
	t.mu.Unlock()
	t.table.View(func(m *machine.State) {
		ids = slices.DeleteFunc(ids, m.Opened)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers[s] != k {
		return // Quit reads k
	}
	for _, id := range ids {
		k.open.delete(id)
	}
	least := wire.MaxAttach
	if !k.count() {
		least = 2 * keysTogether
	}
	k.sweep = max(least, 2*k.open.len())
}

// show notes the sessions of shown keys, those that are open if they are the process's own. It
// returns for how many, from the first, there was room.
func (k *shown) show(ids []machine.SessionID, open, own []bool) int {
	for i, id := range ids {
		switch {
		case own[i]:
			k.opened(id)
		case open[i], k.has(id):
		case !k.remember(&k.fresh, id):
			return i
		}
	}
	return len(ids)
}

// showOpen is show for the open sessions alone.
func (k *shown) showOpen(ids []machine.SessionID, own []bool) {
	for i, id := range ids {
		if own[i] {
			k.opened(id)
		}
	}
}
