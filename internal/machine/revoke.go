package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// How an operator ends the session of another client.

// EndSession ends the session of a Ref, for the client of Session. The session is
// revoked in one step, as a Break takes a single grant:
//
//   - EventRevoked tells the client. The callers of the session leave their groups, so that
//     others are assigned its shards, and its waiters leave all queues: more than a slice
//     of them by EndSlice. A work goes on under its key until the key is freed.
//   - The session is granted nothing more, and is marked as by Silence, for good: no
//     later beat is acknowledged. Its later commands only free what the session has:
//     see usable.
//   - The grants stay until the client closes the session in answer, or until the
//     session expires.
//
// So the keys are freed only after the client has ended its locks, or after its trust
// has ended. A second EndSession of a revoked session changes nothing. A Ref of no open
// session is refused as NoSuchSession: the table does not remember ended sessions.
type EndSession struct {
	Session SessionID
	Ref     SessionRef
}

func (EndSession) command() {}

// SessionRef names an open session to people: a Ref may stand on a page, in a log and in
// a ticket. A Ref is the first half of the SHA-256 hash of "wardmote session ref" and the
// session's ID, so it is the same on every voter, after every change of the leader, and
// in a restored table.
//
// A Ref proves nothing and leads to nothing: requests for a session need the session's
// key, the ID is a hash of the key, and the Ref is a hash of the ID. Neither hash can be
// searched backwards: the key is 256 random bits, so an ID has the entropy of its 128
// bits. So the hash needs no secret and no salt, and a salt would have to be equal on
// all voters.
type SessionRef [16]byte

// Ref returns the Ref of the session.
func (id SessionID) Ref() SessionRef {
	const label = "wardmote session ref"
	var b [len(label) + len(id)]byte
	copy(b[copy(b[:], label):], id[:])
	sum := sha256.Sum256(b[:])
	return SessionRef(sum[:len(SessionRef{})])
}

// String returns the Ref in hexadecimal digits.
func (r SessionRef) String() string { return hex.EncodeToString(r[:]) }

// ParseSessionRef returns the Ref that String has printed, and false for any other text.
func ParseSessionRef(text string) (r SessionRef, ok bool) {
	if len(text) != hex.EncodedLen(len(r)) {
		return r, false
	}
	_, err := hex.Decode(r[:], []byte(text))
	return r, err == nil && r.String() == text
}

// refEntry is the place of a session in State.refs: the Ref, then the ID.
func refEntry(id SessionID) string {
	ref := id.Ref()
	return string(ref[:]) + string(id[:])
}

// sessionOf returns the session of a Ref, open or ending, or nil.
func (s *State) sessionOf(ref SessionRef) *session {
	for entry := range s.refs.from("", string(ref[:])) {
		return s.sessions.get(SessionID([]byte(entry[len(ref):])))
	}
	return nil
}

// SessionOf describes the session of a Ref, open or ending.
func (s *State) SessionOf(ref SessionRef) (SessionStatus, bool) {
	o := s.sessionOf(ref)
	if o == nil {
		return SessionStatus{}, false
	}
	return o.status(), true
}

// SessionsFrom returns, in ascending order of their Refs, at most n sessions, open or
// ending, from first on.
func (s *State) SessionsFrom(first SessionRef, n int) []SessionStatus {
	var list []SessionStatus
	for entry := range s.refs.from(string(first[:]), "") {
		if len(list) == n {
			break
		}
		list = append(list, s.sessions.get(SessionID([]byte(entry[len(first):]))).status())
	}
	return list
}

func (s *State) revoke(c EndSession) Outcome {
	if s.usable(c.Session) == nil {
		return Outcome{Code: NoSession}
	}
	o := s.sessionOf(c.Ref)
	switch {
	case o == nil:
		return Outcome{Code: NoSuchSession}
	case o.dead():
		return Outcome{Code: OK}
	}
	o = s.editSession(o)
	o.revoked, o.silent = true, true
	s.step.events = append(s.step.events, revokedEvent(o.id))
	s.takeSlice([]*session{o}, workPerKey*s.slice)
	return Outcome{Code: OK}
}

func revokedEvent(id SessionID) Event {
	return Event{Kind: EventRevoked, Session: id, Reason: Revoked}
}

// usable returns an open session that is not revoked, or nil. A revoked session gives no
// more orders: it may not hold, keep or set more, nor change anything of others, as Break,
// Ask, EndSession, SetCapacity and Resize do. Orders that lie in a buffer when the session
// is revoked are refused too. The session may only give back: Release, Withdraw, Downgrade,
// Delist and Close.
func (s *State) usable(id SessionID) *session {
	if o := s.sessions.get(id); o != nil && !o.dead() {
		return o
	}
	return nil
}

// fromUsable is fromSession for an order: see usable.
func (s *State) fromUsable(id SessionID, seenSeqs []uint64, f func(*session) Outcome) Outcome {
	if s.usable(id) == nil {
		return Outcome{Code: NoSession}
	}
	return s.fromSession(id, seenSeqs, f)
}

// deriveRefs puts the sessions in refs and processes, which must be empty.
func (s *State) deriveRefs() {
	refs, processes := make([]string, 0, s.sessions.n), make([]string, 0)
	for id, o := range s.sessions.all {
		refs = append(refs, refEntry(id))
		if o.dir != (DirID{}) {
			processes = append(processes, o.processEntry())
		}
	}
	slices.Sort(refs) // an ordered set grows fastest in order
	for _, entry := range refs {
		s.refs.add(entry)
	}
	slices.Sort(processes)
	for _, entry := range processes {
		s.processes.add(entry)
	}
}

// checkRevoked verifies a revoked session.
func (s checker) checkRevoked(o *session) error {
	if o.revoked && (!o.silent || !o.begun && o.ending == 0) {
		return broken(14, "session %x is revoked, silent %t, waits %d times, and is in %d groups", o.id, o.silent, o.index.waits, len(o.index.enlisted))
	}
	return s.checkEnding(o)
}

// endsFor returns the reason to tell for the end of the session.
func (o *session) endsFor(reason Reason) Reason {
	if o.revoked {
		return Revoked
	}
	return reason
}
