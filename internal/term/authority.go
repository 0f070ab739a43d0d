package term

import (
	"maps"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
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
	lost                     // the process's own, but the key was shown when there was no room: it is to be shown again
)

// show notes the keys shown by s, of sessions to be opened if fresh, and returns the
// sessions' IDs. Ok is false if there is no room for keys of sessions that are not
// open; then s may have shown a part of the keys. The key of a session that the
// member takes for open is kept too, while there is room: a deposed leader that does
// not know yet may lack the session, and hear of it later. The key of another process's
// session is of no use, and is not kept.
func (t *Term) show(s *Subscriber, keys []machine.SessionKey, fresh bool) (ids []machine.SessionID, ok bool) {
	ids = make([]machine.SessionID, len(keys))
	for i, key := range keys {
		ids[i] = key.ID()
	}
	room, looked := true, false
	for rest := ids; len(rest) > 0; {
		shown, more := t.showSome(s, rest[:min(len(rest), sessionsAtOnce)], room)
		switch rest = rest[shown:]; {
		case !more:
		case looked:
			room = false
		default:
			t.openFresh(s) // some may be open by now, and make room
			looked = true
		}
	}
	t.mu.Lock()
	k := t.subscribers[s]
	if k == nil {
		t.mu.Unlock()
		return nil, true // the answer is the end of the stream
	}
	sweep := k.open.len() >= k.sweep
	displaced := t.displace(s)
	t.mu.Unlock()
	if !room {
		t.cfg.Refused.Note(refused.Flood, s.from(), "too many session keys")
	}
	if displaced != nil {
		displaced.Stop()
	}
	if sweep {
		t.sweepShown(s)
	}
	if fresh && !room {
		return nil, false
	}
	return ids, true
}

// showSome notes the sessions of shown keys and returns for how many, from the first; more
// says that there was no room for the next. Without room it notes those alone that are open, and the
// process's own.
func (t *Term) showSome(s *Subscriber, ids []machine.SessionID, room bool) (shown int, more bool) {
	open, own := make([]bool, len(ids)), make([]bool, len(ids))
	t.table.View(func(m *machine.State) {
		for i, id := range ids {
			node, boot, opened := m.OpenedBy(id)
			open[i], own[i] = opened, opened && node == s.Node && boot == s.Boot
		}
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	switch k := t.subscribers[s]; {
	case k == nil:
		return len(ids), false
	case !room:
		k.lacked = true
		k.showOpen(ids, own)
		return len(ids), false
	default:
		shown = k.show(ids, open, own)
		return shown, shown < len(ids)
	}
}

// openFresh notes the sessions that have been opened since their keys were shown, if few were:
// others wait meanwhile.
func (t *Term) openFresh(s *Subscriber) {
	t.mu.Lock()
	k := t.subscribers[s]
	var ids []machine.SessionID
	if k != nil && k.fresh.len() <= 2*keysTogether {
		ids = slices.Collect(maps.Keys(k.fresh.m))
	}
	t.mu.Unlock()
	t.table.View(func(m *machine.State) {
		ids = slices.DeleteFunc(ids, func(id machine.SessionID) bool {
			node, boot, open := m.OpenedBy(id)
			return !open || node != s.Node || boot != s.Boot
		})
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers[s] != k {
		return // Quit reads k
	}
	for _, id := range ids {
		k.opened(id)
	}
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
	left, lacked := false, false
	if k != nil {
		left, lacked = k.left.has(id), k.lacked
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
	case st.Node != s.Node || st.Boot != s.Boot || !has && !lacked:
		return stranger
	case !has:
		return lost
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
	sweep := k.open.len() >= k.sweep
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
// session; crowded, if s may have shown the key without effect, and lost, if the session is
// open by now. The table bounds the sessions of a member: see machine.MaxNodeSessions.
func (t *Term) mayOpen(s *Subscriber, c machine.Open) standing {
	t.mu.Lock()
	k := t.subscribers[s]
	has := k != nil && k.has(c.Session)
	full := k != nil && !k.hasRoom()
	t.mu.Unlock()
	if k == nil {
		return gone
	}
	switch st, open := t.session(c.Session); {
	case c.Node != s.Node || c.Boot != s.Boot || open && (st.Node != s.Node || st.Boot != s.Boot):
		return stranger
	case has:
		return owner
	case full && open:
		return lost
	case full:
		return crowded // the key was shown, and may be shown again once there is room
	}
	return stranger
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
	if len(t.streams[member.Process{Name: c.Node, Boot: c.Boot}]) > 0 {
		return wire.CodeBusy // one may be about to end
	}
	return wire.CodeOK
}

// refuse counts a request for a session of another process.
func (t *Term) refuse(s *Subscriber, request string) {
	from := ""
	if s != nil {
		from = s.from()
	}
	t.cfg.Refused.Note(refused.Session, from, request)
}
