package link

import (
	"context"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file takes the notices of leaders: words that nobody asked for. Many members are
// asked for the leader, most of them on gossip's word alone, and each of them could send
// notices beside its answer. So a stream's notices count by what the stream has shown:
//
//   - Before the answer to Attach, which proves the voter role, no notice counts. A leader
//     sends a bound before that answer at the earliest, and the answer has the bound too.
//   - From the answer on, the events of this member's sessions count: the leader sends
//     the events that were missed right behind the answer.
//   - A bound, and the state of the voters in the leader's own term, count while the
//     leader serves this member. The latest of each is kept until then. A leader that is
//     kept back as a rival, or is given up, has changed nothing: the bound lengthens the
//     wait of the next cluster, and a high term would keep the words of later leaders
//     out. When a false leader is left, its term is forgotten, and its words with it:
//     see jury.go.

// notices is the part of a remote that takes notices.
type notices struct {
	mu       sync.Mutex
	attached bool               // Attach was answered
	serves   bool               // the remote is or was the upstream
	bound    *wire.AttachAnswer // the latest before that; nil: none
	voters   *wire.VoterSet     // the same
}

// answered notes that the leader has answered Attach. It is called on the stream's reading
// goroutine, so that no notice behind the answer comes before.
func (s *notices) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = true
}

// heard reports whether the leader has answered Attach.
func (s *notices) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

// attach sends a request of Attach, and waits for the answer.
func (u *remote) attach(ctx context.Context, body []byte) (wire.Frame, error) {
	type answer struct {
		f   wire.Frame
		err error
	}
	ch := make(chan answer, 1)
	id, err := u.stream.Begin(wire.Attach, body, func(f wire.Frame, err error) {
		if err == nil && f.Code == wire.CodeOK {
			u.notices.answered()
		}
		ch <- answer{f, err}
	})
	if err != nil {
		return wire.Frame{}, err
	}
	select {
	case a := <-ch:
		return a.f, a.err
	case <-ctx.Done():
		u.stream.Forget(id)
		return wire.Frame{}, context.Cause(ctx)
	}
}

// handle takes a notice of the member at the other end of u.
func (k *Link) handle(u *remote, q *stream.Request) {
	if !u.notices.heard() {
		q.Answer(wire.CodeBad, nil)
		return
	}
	switch q.Type {
	case wire.Event:
		if e, err := machine.DecodeEvent(q.Body); err == nil {
			k.deliver(e)
		}
	case wire.Bound:
		var a wire.AttachAnswer
		if wire.Unmarshal(q.Body, &a) == nil {
			k.keep(u, func(s *notices) { s.bound = &a })
		}
	case wire.Voters:
		var set wire.VoterSet
		if wire.Unmarshal(q.Body, &set) == nil && sound(set) {
			k.keep(u, func(s *notices) { s.voters = &set })
		}
	default:
		q.Answer(wire.CodeBad, nil)
	}
}

// keep keeps a notice of u, and takes the notice if u serves this member.
func (k *Link) keep(u *remote, note func(*notices)) {
	s := &u.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s)
	if s.serves {
		k.takeLocked(u)
	}
}

// believe takes the notices kept of u, which serves this member from now on, and has the
// later ones taken at once.
func (k *Link) believe(u *remote) {
	s := &u.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves = true
	k.takeLocked(u)
}

// takeLocked takes the notices kept of u. The caller holds u.notices.mu.
func (k *Link) takeLocked(u *remote) {
	s := &u.notices
	if s.bound != nil {
		k.setBound(*s.bound)
	}
	if s.voters != nil && s.voters.Term == u.term {
		k.votersTold(u.cluster, *s.voters)
	}
	s.bound, s.voters = nil, nil
}

// setBound stores the bound of session TTLs, as told by the leader.
func (k *Link) setBound(a wire.AttachAnswer) {
	k.mu.Lock()
	if a.TTL <= machine.MaxTTL {
		k.ttl = a.TTL
		k.away.noteTTL(a.TTL)
	}
	k.mu.Unlock()
}

// votersTold takes the state of the voters from a leader of the given cluster.
func (k *Link) votersTold(cluster machine.ClusterID, set wire.VoterSet) {
	var addrs []string
	for _, v := range set.Voters {
		addrs = append(addrs, v.Addr)
	}
	k.learn(addrs)
	k.cfg.Voters(cluster, set)
}
