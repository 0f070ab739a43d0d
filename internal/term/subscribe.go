package term

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// A Subscriber gets the events of sessions: a member's stream, or this node
// itself. No function may block.
type Subscriber struct {
	Node string // the member and its process: as proved by its stream
	Boot uint64
	From string // names the subscriber's stream in a refusal, with its host; "": Node does

	// Dir is the directory whose key the subscriber has shown. Zero: none, and the
	// subscriber forgets no process.
	Dir machine.DirID

	// Shared means that the stream proves a certificate that names no member: every
	// member with the certificate may claim to be Node.
	Shared bool

	// Mere means that the stream proves a certificate without the voter role.
	Mere bool

	Event func(machine.Event)
	Bound func(wire.AttachAnswer) // the bound of sessions' TTLs has changed
	Stop  func()                  // the term has ended; nil: nothing to do

	// Voters is told the state of the voters, after the first Attach and at each
	// change. Nil: nobody asks.
	Voters func(wire.VoterSet)

	// Later is Event for an event that is made when it is sent. It must call the function
	// at most once, and never while the Term is being called. Nil: Event.
	Later func(func() machine.Event)

	// Keep counts n bytes of keys kept for the subscriber, in the place of those counted
	// before, and reports false if more do not fit. Nil: without bounds.
	Keep func(n int) bool

	attached atomic.Bool  // Attach was called
	denials  denials      // of sessions that are not open
	retold   atomic.Int64 // events told again that are not on their way yet
	took     atomic.Int64 // when the last of these went, or the first came: nanoseconds of the Term's life
	telling  sync.Mutex   // calls of Voters do not overlap
	told     announcement // told last; guarded by telling
}

func (s *Subscriber) process() member.Process { return member.Process{Name: s.Node, Boot: s.Boot} }

func (s *Subscriber) from() string { return cmp.Or(s.From, s.Node) }

// streamsOf returns the subscribers of the process of s. The caller holds t.mu.
func (t *Term) streamsOf(s *Subscriber) map[*Subscriber]*shown { return t.streams[s.process()] }

// Join adds a subscriber. Join reports false, and adds nothing, if the term has
// ended.
func (t *Term) Join(s *Subscriber) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.joins++
	t.add(s, newShown(s.Keep, t.joins))
	return true
}

func (t *Term) add(s *Subscriber, k *shown) {
	t.subscribers[s] = k
	p := s.process()
	if t.streams[p] == nil {
		t.streams[p] = make(map[*Subscriber]*shown)
	}
	t.streams[p][s] = k
}

// Members returns the number of members attached, this node included.
func (t *Term) Members() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subscribers)
}

// Quit removes a subscriber. The sessions routed to the subscriber are routed to
// another subscriber of the same process that has shown their keys, if there is one.
// A member in search of the leader attaches on several streams at once and keeps one;
// the routes are with the stream that attached last, which may be one that is given up.
// Left to that stream, they would be lost until the session's next beat. Of several the last is
// taken: an old one may be dead.
func (t *Term) Quit(s *Subscriber) {
	t.quitDenials(s)
	t.mu.Lock()
	k := t.subscribers[s]
	delete(t.subscribers, s)
	others := t.streamsOf(s)
	delete(others, s)
	heirs := slices.SortedFunc(maps.Keys(others), func(a, b *Subscriber) int {
		return cmp.Compare(others[b].joined, others[a].joined)
	})
	if len(others) == 0 {
		delete(t.streams, s.process())
		delete(t.described, s.process())
		t.attachments.Wake()
	}
	t.mu.Unlock()
	if k == nil {
		return // the term has ended
	}
	// Nobody else changes k from here on. Every session routed to s is in k.open.
	for ids := range slices.Chunk(slices.Collect(maps.Keys(k.open.m)), sessionsAtOnce) {
		for _, l := range t.bequeath(s, ids, heirs) {
			t.acts(l.heir, l.id)
		}
	}
}

// sessionsAtOnce is the largest number of a stream's sessions that are looked at in one hold of
// Term.mu, for which raft's goroutine may wait with events.
const sessionsAtOnce = 256

// legacy is a session with its next subscriber.
type legacy struct {
	heir *Subscriber
	id   machine.SessionID
}

// bequeath ends the routes of the sessions to s, and returns those with an heir.
func (t *Term) bequeath(s *Subscriber, ids []machine.SessionID, heirs []*Subscriber) (left []legacy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.sessions[id] != s {
			continue
		}
		delete(t.sessions, id)
		i := slices.IndexFunc(heirs, func(o *Subscriber) bool {
			k := t.subscribers[o] // nil: quit meanwhile
			return k != nil && k.has(id)
		})
		if i >= 0 {
			left = append(left, legacy{heirs[i], id})
		}
	}
	return left
}

// Attach has s act for the sessions of the keys, routes the events of the open
// sessions to s, and tells s every event possibly missed: the grants not marked as
// seen by the session, and the ends of sessions. The fresh keys are of sessions to be
// opened: s is not told that they are not open. Ok is false if there is no
// room for the fresh keys, or if too many ends of sessions or events told again wait: then nothing is
// told.
func (t *Term) Attach(s *Subscriber, keys, fresh []machine.SessionKey) (ok bool) {
	return t.attach(s, keys, fresh, func() {})
}

// attach is Attach. It calls shown before s is told anything.
func (t *Term) attach(s *Subscriber, keys, fresh []machine.SessionKey, shown func()) (ok bool) {
	opening, ok := t.show(s, fresh, true)
	if !ok {
		return false
	}
	ids, _ := t.show(s, keys, false)
	counted := t.unopened(ids)
	if !t.mayDeny(s, counted) {
		return false
	}
	again := t.missed(s, slices.Concat(opening, ids))
	if !t.mayRetell(s, again) {
		t.told(s, counted)
		return false
	}
	defer t.countRetold(s, -again) // each is counted as it is told
	shown()
	t.tellVoters(s)
	for _, id := range opening {
		if t.takes(s, id, true) == stranger {
			t.refuse(s, "attached to a session of another process")
		}
	}
	ended := make([]machine.SessionID, 0, counted)
	for _, id := range ids {
		switch t.takes(s, id, true) {
		case stranger:
			t.refuse(s, "attached to a session of another process")
		case nobody:
			if len(ended) == counted { // one has ended meanwhile
				if !t.mayDeny(s, 1) {
					continue // the session's next beat tells
				}
				counted++
			}
			ended = append(ended, id)
		}
	}
	t.told(s, counted-len(ended))
	t.denyOpen(s, ended)
	return true
}

// Show is Attach for sessions to be opened.
func (t *Term) Show(s *Subscriber, fresh ...machine.SessionKey) { t.Attach(s, nil, fresh) }

// Detach ends the part of s in a session: the events go nowhere, and further requests
// of s for the session are answered as if the session were not open.
func (t *Term) Detach(s *Subscriber, id machine.SessionID) {
	st, open := t.session(id)
	t.mu.Lock()
	k := t.subscribers[s]
	has := k != nil && k.has(id)
	lacked := k != nil && k.lacked && st.Node == s.Node && st.Boot == s.Boot
	if has {
		k.leave(id, open)
	}
	if t.sessions[id] == s {
		delete(t.sessions, id)
	}
	t.mu.Unlock()
	if k == nil || has || lacked {
		return
	}
	if open {
		t.refuse(s, "detached a session of another process")
	}
}

// unroute ends the routing of a session's events.
func (t *Term) unroute(id machine.SessionID) {
	t.mu.Lock()
	delete(t.sessions, id)
	t.mu.Unlock()
}

// AnnounceBound tells every subscriber the bound of sessions' TTLs, in
// milliseconds.
func (t *Term) AnnounceBound(ttl uint64) {
	t.mu.Lock()
	subscribers := slices.Collect(maps.Keys(t.subscribers))
	t.mu.Unlock()
	for _, s := range subscribers {
		if s.Bound != nil {
			s.Bound(wire.AttachAnswer{Term: t.cfg.Term, TTL: ttl})
		}
	}
}

// Beat takes a keepalive of a session of s. done gets CodeOK once a round begun
// after the call has confirmed the leader, CodeNoSession if the session is not
// open, CodeStranger if the session is not of s, or s is to show its key once more, and CodeNotLeader if the leader may have
// been replaced.
func (t *Term) Beat(s *Subscriber, id machine.SessionID, done func(wire.Code)) {
	switch t.acts(s, id) {
	case owner:
		t.keeper.receive(id, beat{t.table.Clock.Now(), done})
	case nobody:
		// A deposed leader may lack a newer session: only a confirmed leader may deny a
		// session.
		t.confirmThen(wire.CodeNoSession, done)
	case gone:
		done(wire.CodeNotLeader)
	case lost:
		done(wire.CodeStranger)
	default:
		t.refuse(s, "beat for a session of another process")
		done(wire.CodeStranger)
	}
}

// Propose proposes a client's command for a session of s. With CodeOK the
// command is committed, with this outcome, or the session is not open, with the
// outcome NoSession. A Forget is for an earlier process with the very directory
// that s has shown. CodeUnknown means: the command may have been applied, or may be applied
// later. With any other code nothing happened: CodeNo, the Forget leaves the sessions
// to their TTL; CodeBad, no client proposes such a command; CodeStranger, the session is
// not of s; CodeDenied, Config.Deny has refused, for the reason in the outcome's Value;
// CodeVersion, some voter may not read the command yet; CodeBusy, too many commands
// wait, or there was no room for the key of a session to be opened, or the command was taken back;
// CodeNotLeader, this node does not lead.
//
// The result is the command's place for TakeBack; 0: it waits nowhere.
func (t *Term) Propose(s *Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code)) (place uint64) {
	return t.propose(s, cmd, nil, done)
}

// TakeBack removes a command that s has proposed, and that is in no entry yet: nobody waits
// for its outcome any more, so it must not cost the others a place. Its done gets CodeBusy.
// A place of a command in an entry changes nothing.
func (t *Term) TakeBack(s *Subscriber, place uint64) {
	if place != 0 {
		t.proposer.takeBack(s.Node, place)
	}
}

// propose is Propose for a command decoded from frame, or made by this process if
// frame is nil.
func (t *Term) propose(s *Subscriber, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) (place uint64) {
	by := owner
	switch c := cmd.(type) {
	case machine.Open:
		by = t.mayOpen(s, c)
	case machine.Close:
		done = t.endings.closed(c.Session, done)
		by = t.acts(s, c.Session)
	case machine.Forget:
		if code := t.mayForget(s, c); code != wire.CodeOK {
			if code == wire.CodeBad {
				t.refuse(s, "a Forget of another member's sessions")
			}
			done(machine.Outcome{}, code)
			return 0
		}
		done = t.endings.forgotten(c, done)
	default:
		id, ok := clientCommand(cmd)
		if !ok {
			t.refuse(s, "a command reserved to the leader")
			done(machine.Outcome{}, wire.CodeBad)
			return 0
		}
		by = t.acts(s, id)
	}
	switch by {
	case nobody:
		told := done // done itself, which is assigned above and below, would take memory in each call
		t.confirmThen(wire.CodeOK, func(c wire.Code) { told(machine.Outcome{Code: machine.NoSession}, c) })
		return 0
	case gone:
		done(machine.Outcome{}, wire.CodeNotLeader)
		return 0
	case crowded:
		done(machine.Outcome{}, wire.CodeBusy)
		return 0
	case lost:
		done(machine.Outcome{}, wire.CodeStranger)
		return 0
	case stranger:
		t.refuse(s, "a command for a session of another process")
		done(machine.Outcome{}, wire.CodeStranger)
		return 0
	}
	if reason, denied := t.deny(s, cmd); denied {
		done(machine.Outcome{Value: reason}, wire.CodeDenied)
		return 0
	}
	if f := t.cfg.Format(cmd); f > 1 && f > t.table.Format() { // every table has format 1
		done(machine.Outcome{}, wire.CodeVersion)
		return 0
	}
	if c, ok := cmd.(machine.EndSession); ok {
		done = t.keeper.holdBeats(c, done)
	}
	return t.proposer.propose(s.Node, cmd, frame, done)
}

// deny asks Config.Deny about a command that touches the locks of others.
func (t *Term) deny(s *Subscriber, cmd machine.Command) (reason string, denied bool) {
	if t.cfg.Deny == nil {
		return "", false
	}
	switch cmd.(type) {
	case machine.Ask, machine.Break, machine.Resize, machine.SetCapacity, machine.EndSession:
		reason, denied = t.cfg.Deny(s.Node, s.Boot, cmd)
		return wire.DeniedReason(reason), denied
	}
	return "", false
}

// clientCommand returns the session of a client's command about a session that is
// open, and false for every other command: Open and Forget have rules of their own, and
// all others are reserved to the leader. A new command is the leader's alone until it
// stands here.
func clientCommand(c machine.Command) (id machine.SessionID, ok bool) {
	switch c := c.(type) {
	case machine.Acquire:
		return c.Session, true
	case machine.Withdraw:
		return c.Session, true
	case machine.Release:
		return c.Session, true
	case machine.Close:
		return c.Session, true
	case machine.Upgrade:
		return c.Session, true
	case machine.Downgrade:
		return c.Session, true
	case machine.SetValue:
		return c.Session, true
	case machine.Ask:
		return c.Session, true
	case machine.Break:
		return c.Session, true
	case machine.Enlist:
		return c.Session, true
	case machine.Delist:
		return c.Session, true
	case machine.Decline:
		return c.Session, true
	case machine.Resize:
		return c.Session, true
	case machine.SetCapacity:
		return c.Session, true
	case machine.Extend:
		return c.Session, true
	case machine.EndSession:
		return c.Session, true
	}
	return id, false
}

// SessionOf returns the session of a client's command, or zero.
func SessionOf(cmd machine.Command) machine.SessionID {
	if c, ok := cmd.(machine.Open); ok {
		return c.Session
	}
	id, _ := clientCommand(cmd)
	return id
}
