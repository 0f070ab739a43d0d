package link

import (
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file has the sessions of this member, and their keys. The leader takes the
// requests for a session only from streams on which the key was shown. So every
// upstream is shown the keys before the first call:
//
//   - put attaches with the keys of all claims so far;
//   - serve shows the claims made since, before the upstream is that of the calls;
//   - Claim shows the key to the present upstream before it returns.

// attachment is a claimed session of this member.
type attachment struct {
	key    *machine.SessionKey // behind a pointer: see SessionKey
	number uint64              // of the claim

	mu   sync.Mutex          // calls of sink do not overlap
	sink func(machine.Event) // nil: not attached yet
}

// tell tells the session's client an event.
func (a *attachment) tell(e machine.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sink(e)
}

// NewKey implements replica.Replica.
func (k *Link) NewKey() machine.SessionKey { return k.cfg.Signer.NewKey() }

// Claim implements replica.Replica.
func (k *Link) Claim(key machine.SessionKey) {
	k.mu.Lock()
	k.claims++
	k.attached[key.ID()] = &attachment{key: &key, number: k.claims}
	up := k.up
	k.mu.Unlock()
	if up != nil {
		up.Show(k.subscriber, key)
	}
}

// over reports whether a session is not claimed, or detached. Over is false for the zero
// ID, of requests without a session.
func (k *Link) over(id machine.SessionID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return id != (machine.SessionID{}) && k.attached[id] == nil
}

// opening reports whether a session is claimed and not attached yet.
func (k *Link) opening(id machine.SessionID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.attached[id]
	return a != nil && a.sink == nil
}

// showAgain shows up the key of a claimed session once more, ahead of the next request.
// showAgain reports false for every other session.
func (k *Link) showAgain(up upstream, id machine.SessionID) bool {
	k.mu.Lock()
	a := k.attached[id]
	k.mu.Unlock()
	if a != nil {
		up.Show(k.subscriber, *a.key)
	}
	return a != nil
}

// Attach implements replica.Replica. Without a claim Attach does nothing.
func (k *Link) Attach(id machine.SessionID, sink func(machine.Event)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.attached[id]; a != nil {
		k.attached[id] = &attachment{key: a.key, number: a.number, sink: sink}
	}
}

// Detach implements replica.Replica.
func (k *Link) Detach(id machine.SessionID) {
	k.mu.Lock()
	delete(k.attached, id)
	up := k.up
	k.mu.Unlock()
	if up != nil {
		up.Detach(k.subscriber, id)
	}
}

// keys lists the keys of the attached sessions, and of the fresh ones, which are being
// opened, up to the claim of the given number.
func (k *Link) keys() (keys, fresh []machine.SessionKey, claims uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.attached {
		if a.sink != nil {
			keys = append(keys, *a.key)
		} else {
			fresh = append(fresh, *a.key)
		}
	}
	return keys, fresh, k.claims
}

// claimedSinceLocked lists the keys claimed after the claim of the given number.
func (k *Link) claimedSinceLocked(claims uint64) (fresh []machine.SessionKey) {
	for _, a := range k.attached {
		if a.number > claims {
			fresh = append(fresh, *a.key)
		}
	}
	return fresh
}

// takeAttachedLocked removes the attached sessions, and leaves those being opened.
func (k *Link) takeAttachedLocked() map[machine.SessionID]*attachment {
	taken := make(map[machine.SessionID]*attachment)
	for id, a := range k.attached {
		if a.sink != nil {
			taken[id] = a
			delete(k.attached, id)
		}
	}
	return taken
}

// deliver tells a session's client an event. The token of another session's event does
// not count: nobody sends this member such an event without a mistake or a lie.
func (k *Link) deliver(e machine.Event) {
	k.mu.Lock()
	a := k.attached[e.Session]
	if a != nil {
		k.away.noteToken(e.Token + machine.Token(e.Block))
	}
	k.mu.Unlock()
	if a != nil && a.sink != nil {
		a.tell(e)
	}
}

// maxShown is the number of keys in a request, once a larger one was refused, or not answered:
// 9 KB, for which the leader always has room. A stream with 1,024 sessions that have ended is
// never refused either.
const maxShown = 256

// mostShows is how often a leader that takes a request for a stranger's is shown the session's key
// once more: it may have no room for the request that shows the key, either.
const mostShows = 5

// attachRequests returns the requests that show the keys, at least one, of most keys each.
func attachRequests(term uint64, keys, fresh []machine.SessionKey, most int) (requests []wire.AttachRequest) {
	for more := true; more; more = len(keys)+len(fresh) > 0 {
		req := wire.AttachRequest{Term: term}
		n := min(len(keys), most)
		req.Keys, keys = keys[:n], keys[n:]
		n = min(len(fresh), most-n)
		req.New, fresh = fresh[:n], fresh[n:]
		requests = append(requests, req)
	}
	return requests
}
