package term

import (
	"maps"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A subscriber acts for a session after two proofs:
//
//   - The subscriber has shown the session's key in Attach. The ID is a hash of the
//     key, so the ID in an answer or an event is no help to a reader.
//   - The subscriber's process is the process that opened the session. Certificates
//     prove the process where they name the member; then a stolen key is no help
//     either.
//
// A client shows the key before the Open, on every stream that its member makes: so
// no request of an honest client overtakes its key. See replica.Replica.Claim.
//
// All other requests for an open session are refused as CodeStranger, and change
// nothing: no beat counts, no event is routed, no command reaches the log. A session
// that is not open has nothing to guard. Requests for such a session are answered
// alike for every subscriber, after a round: there is no such session.

// standing is a subscriber's relation to a session.
type standing uint8

const (
	nobody   standing = iota // the session is not open, or the subscriber has detached it
	owner                    // the subscriber acts for the session
	stranger                 // the session belongs to another process, or the key was not shown
	gone                     // the subscriber has quit, or the term has ended
	crowded                  // an Open, and the leader has no room for the key: see shown
)

// shown is what a subscriber has shown of sessions, guarded by Term.mu.
type shown struct {
	open  sessionSet // were open when the key was shown or used
	fresh sessionSet // were not; at most wire.MaxAttach
	left  sessionSet // open, but detached by their owner; at most wire.MaxAttach
	sweep int        // with so many in open, the ended ones are forgotten

	keep func(bytes int) bool // Subscriber.Keep
	kept int                  // bytes
}

type sessionSet map[machine.SessionID]struct{}

// Shown sessions are counted keysTogether at a time: so many, 16 KiB, are the part of each
// stream that no bound counts.
const (
	keysTogether = 256
	keyBytes     = 64
)

func newShown(keep func(bytes int) bool) *shown {
	if keep == nil {
		keep = func(int) bool { return true }
	}
	return &shown{open: make(sessionSet), fresh: make(sessionSet), left: make(sessionSet), sweep: wire.MaxAttach, keep: keep}
}

// count has the budget count all sessions and more, and reports false if more do not fit.
func (k *shown) count(more int) bool {
	n := len(k.open) + len(k.fresh) + len(k.left) + more
	bytes := (n + keysTogether - 1) / keysTogether * keysTogether * keyBytes
	if bytes != k.kept && !k.keep(bytes) {
		return false
	}
	k.kept = bytes
	return true
}

// remember adds a session to fresh or left, and reports false if there is no room.
func (k *shown) remember(in sessionSet, id machine.SessionID) bool {
	if _, known := in[id]; known {
		return true
	}
	if len(in) >= wire.MaxAttach || !k.count(1) {
		return false
	}
	in[id] = struct{}{}
	return true
}

// hasRoom reports whether the key of one more session that is not open would be kept.
func (k *shown) hasRoom() bool {
	room := len(k.fresh) < wire.MaxAttach && k.count(1)
	k.count(0)
	return room
}

func (k *shown) has(id machine.SessionID) bool {
	if _, ok := k.open[id]; ok {
		return true
	}
	_, ok := k.fresh[id]
	return ok
}

// leave forgets a session that its owner has detached. A request of the owner may be
// under way beside the Detach, of a session that could not be closed: for the owner
// such a session is over, and the request is no theft.
func (k *shown) leave(id machine.SessionID, open bool) {
	delete(k.open, id)
	delete(k.fresh, id)
	if open {
		k.remember(k.left, id)
	}
	k.count(0)
}

// opened notes that the session of a shown key is open. The table bounds the open sessions, so
// there is always room.
func (k *shown) opened(id machine.SessionID) {
	delete(k.fresh, id)
	delete(k.left, id)
	k.open[id] = struct{}{}
	k.count(0)
}

// sweepShown forgets the ended sessions that s has shown, when there are many. An ended session stays
// until Detach: late requests of its client may be on their way, and are no theft. Without
// the sweep, a member that never detaches would fill the memory with sessions of the past.
// The table is read without Term.mu, for which beats would wait.
func (t *Term) sweepShown(s *Subscriber) {
	t.mu.Lock()
	k := t.subscribers[s]
	if k == nil || len(k.open) < k.sweep {
		t.mu.Unlock()
		return
	}
	k.sweep = 2 * len(k.open)
	ids := slices.Collect(maps.Keys(k.open))
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
		delete(k.open, id)
	}
	k.count(0)
	k.sweep = max(wire.MaxAttach, 2*len(k.open))
}

// show notes the keys shown by s, of sessions to be opened if fresh, and returns the
// sessions' IDs. Ok is false if s has shown too many keys of sessions that are not
// open; then s may have shown a part of the keys. The key of a session that the
// member takes for open is kept too, while there is room: a deposed leader that does
// not know yet may lack the session, and hear of it later.
func (t *Term) show(s *Subscriber, keys []machine.SessionKey, fresh bool) (ids []machine.SessionID, ok bool) {
	ids = make([]machine.SessionID, len(keys))
	for i, key := range keys {
		ids[i] = key.ID()
	}
	open := make([]bool, len(ids))
	t.table.View(func(m *machine.State) {
		for i, id := range ids {
			open[i] = m.Opened(id)
		}
	})
	t.mu.Lock()
	k := t.subscribers[s]
	if k == nil {
		t.mu.Unlock()
		return nil, true // the answer is the end of the stream
	}
	room := k.show(ids, open)
	sweep := len(k.open) >= k.sweep
	t.mu.Unlock()
	if sweep {
		t.sweepShown(s)
	}
	if fresh && !room {
		return nil, false
	}
	return ids, true
}

// show notes the sessions of shown keys. room is false if there were too many that are not
// open.
func (k *shown) show(ids []machine.SessionID, open []bool) (room bool) {
	room = true
	for i, id := range ids {
		switch {
		case open[i]:
			k.opened(id)
		case k.has(id):
		case !k.remember(k.fresh, id):
			room = false
		}
	}
	return room
}

// acts returns the standing of s to an open session. The events of the session are
// routed to an owner from then on. If the events went elsewhere before, s is told
// the events possibly missed; gone, if too many of them wait already. The route is made
// first and the table read then, so no event falls between; an event told twice does no
// harm.
func (t *Term) acts(s *Subscriber, id machine.SessionID) standing { return t.takes(s, id, false) }

// takes is acts. Counted says that the caller has asked mayRetell.
func (t *Term) takes(s *Subscriber, id machine.SessionID, counted bool) standing {
	t.mu.Lock()
	k := t.subscribers[s]
	routed := k != nil && t.sessions[id] == s // so s was the owner before
	has := k != nil && k.has(id)
	left := false
	if k != nil {
		_, left = k.left[id]
	}
	t.mu.Unlock()
	switch {
	case routed:
		return owner
	case k == nil:
		return gone
	}
	st, open := t.session(id)
	switch {
	case !open || left:
		return nobody
	case !has || st.Node != s.Node || st.Boot != s.Boot:
		return stranger
	}
	n := 0
	if !counted {
		if n = t.missed(s, []machine.SessionID{id}); !t.mayRetell(s, n) {
			return gone
		}
	}
	t.mu.Lock()
	if t.subscribers[s] != k {
		t.mu.Unlock()
		return gone
	}
	k.opened(id)
	sweep := len(k.open) >= k.sweep
	t.sessions[id] = s
	t.mu.Unlock()
	if sweep {
		t.sweepShown(s)
	}
	var missed []machine.Event
	t.table.View(func(m *machine.State) {
		open = m.Opened(id)
		missed = m.Pending(id)
	})
	if !open {
		// The session ended before the route was made, so no event will remove
		// the route.
		t.unroute(id)
		missed = nil
	}
	t.countRetold(s, len(missed)-n) // some came or went meanwhile
	t.retell(s, missed)
	if !open {
		return nobody
	}
	return owner
}

// session describes an open session. A session that is ending is not open.
func (t *Term) session(id machine.SessionID) (st machine.SessionStatus, open bool) {
	t.table.View(func(m *machine.State) { st, open = m.Session(id) })
	return st, open && !st.Ending
}

// mayOpen returns the standing of s to a session that s wants to open: owner, if s has
// shown the key, the Open names the process of s, and no other process has opened the
// session; crowded, if s may have shown the key without effect. The table bounds the sessions
// of a member: see machine.MaxNodeSessions.
func (t *Term) mayOpen(s *Subscriber, c machine.Open) standing {
	t.mu.Lock()
	k := t.subscribers[s]
	has := k != nil && k.has(c.Session)
	full := k != nil && !k.hasRoom()
	t.mu.Unlock()
	if k == nil {
		return gone
	}
	if _, open := t.session(c.Session); !has && full && !open {
		return crowded // the key was shown, and may be shown again once others have opened
	}
	if !has || c.Node != s.Node || c.Boot != s.Boot {
		return stranger
	}
	if st, open := t.session(c.Session); open && (st.Node != s.Node || st.Boot != s.Boot) {
		return stranger
	}
	return owner
}

// mayForget returns the standing of s to the earlier process named by a Forget. Only a later
// process with the same directory may have sessions ended: s has shown the directory's key
// (a name is no proof, since every holder of a shared secret or certificate can take any),
// and the table ends the sessions that carry the key's ID. So neither a namesake nor a
// process without a directory ends any. CodeBusy says that the process is attached: it
// lives, and the directory is a copy. CodeNo leaves the sessions of a process of the far
// future, by the leader's clock, to their TTL. A boot is a time, and of more than
// machine.MaxEnded processes the table drops the oldest: made-up ones of the future would
// never be dropped. Clocks that were wrong by hours make boots of the near future.
func (t *Term) mayForget(s *Subscriber, c machine.Forget) wire.Code {
	if s == nil || c.Node != s.Node || c.Boot >= s.Boot || c.Dir == (machine.DirID{}) || c.Dir != s.Dir {
		return wire.CodeBad
	}
	if c.Boot > uint64(max(t.table.Clock.Wall().Add(timing.FutureBoot).UnixNano(), 0)) {
		return wire.CodeNo
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := range t.subscribers {
		if o.Node == c.Node && o.Boot == c.Boot {
			return wire.CodeBusy // its stream may be about to end
		}
	}
	return wire.CodeOK
}

// refuse counts a request for a session of another process.
func (t *Term) refuse(s *Subscriber, request string) {
	from := ""
	if s != nil {
		from = s.Node
	}
	t.cfg.Refused.Note(refused.Session, from, request)
}
