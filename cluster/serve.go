package cluster

import (
	"context"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// serveMember serves one member's stream while this node leads.
func (n *Node) serveMember(c *port.Conn) {
	s := &memberStream{n: n, reads: make(map[uint64]reading)}
	s.rpc = newRPC(c, s.serve)
	s.rpc.start()
	s.rpc.wg.Wait()
	s.mu.Lock()
	reads := s.reads
	s.reads = nil
	s.mu.Unlock()
	for _, r := range reads {
		r.cancel()
	}
}

// A member may have so many reads under way, and so many keys in them. It is
// less than maxServing, so that those that wait leave room for its beats.
const (
	maxReads    = maxServing / 2
	maxReadKeys = 256 << 10
)

// reading is a Read or Scan under way.
type reading struct {
	cancel func() // gives it up if it waits
	keys   int
}

// memberStream is the leader's end of a member's stream.
type memberStream struct {
	n      *Node
	rpc    *rpc
	leader *leader // the term's that the stream belongs to; set by Attach
	member *member

	mu    sync.Mutex
	reads map[uint64]reading // by their requests' IDs; nil once the stream has ended
	keys  int                // of all reads
}

func (s *memberStream) serve(q *request) {
	if q.Type == wire.Attach {
		s.attach(q)
		return
	}
	l := s.leader
	if l == nil {
		q.answer(wire.CodeBad, nil)
		s.rpc.stop(errStreamClosed)
		return
	}
	switch q.Type {
	case wire.Propose:
		s.propose(q)
	case wire.Beat:
		if id, ok := sessionID(q.Body); ok {
			l.bind(s.member, id)
			l.keeper.beat(id, func(c wire.Code) { q.answer(c, nil) })
			return
		}
		q.answer(wire.CodeBad, nil)
	case wire.Read:
		s.read(q)
	case wire.Scan:
		s.scan(q)
	case wire.Cancel:
		if r, ok := s.forget(q.cancels()); ok {
			r.cancel()
		}
	case wire.Ready:
		l.granting(func(c wire.Code) { q.answer(c, nil) })
	case wire.Detach:
		if id, ok := sessionID(q.Body); ok {
			l.detach(id)
		}
	case wire.Depart:
		var req wire.DepartRequest
		if wire.Unmarshal(q.Body, &req) != nil {
			q.answer(wire.CodeBad, nil)
			return
		}
		l.depart(req.Name, req.Boot, func(c wire.Code) { q.answer(c, nil) })
	default:
		q.answer(wire.CodeBad, nil)
	}
}

func (s *memberStream) attach(q *request) {
	var req wire.AttachRequest
	if wire.Unmarshal(q.Body, &req) != nil || len(req.Sessions) > wire.MaxAttach {
		q.answer(wire.CodeBad, nil)
		return
	}
	if s.leader == nil {
		l := s.n.leader.Load()
		// A leader of an older term than the member has seen is deposed and
		// does not know it yet.
		if l == nil || l.term < req.Term {
			q.answer(wire.CodeNotLeader, wire.Marshal(s.n.hint()))
			return
		}
		r := s.rpc
		m := &member{
			push: func(e machine.Event) {
				r.push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: machine.AppendEvent(nil, e)} })
			},
			bound: func(a wire.AttachAnswer) { r.notify(wire.Bound, wire.Marshal(&a)) },
			stop:  func() { r.stop(errStreamClosed) },
		}
		if !l.join(m) {
			q.answer(wire.CodeNotLeader, wire.Marshal(s.n.hint()))
			return
		}
		s.leader, s.member = l, m
		r.atStop(func() { l.quit(m) })
	}
	q.answer(wire.CodeOK, wire.Marshal(&wire.AttachAnswer{Term: s.leader.term, TTL: s.leader.bound()}))
	s.leader.attach(s.member, req.Sessions)
}

func (s *memberStream) propose(q *request) {
	cmd, rest, err := machine.DecodeCommand(q.Body)
	id, ok := clientCommand(cmd)
	if err != nil || len(rest) > 0 || !ok {
		// What only a leader may propose is never taken from a stream.
		q.answer(wire.CodeBad, nil)
		return
	}
	s.leader.bind(s.member, id)
	s.leader.propose(cmd, func(o machine.Outcome, c wire.Code) {
		q.answerLater(c, func() []byte {
			if c != wire.CodeOK {
				return nil
			}
			return machine.AppendOutcome(nil, o)
		})
	})
}

func (s *memberStream) read(q *request) {
	var query wire.Query
	if wire.Unmarshal(q.Body, &query) != nil || checkQuery(replica.Query(query)) != nil {
		q.answer(wire.CodeBad, nil)
		return
	}
	s.wait(q, 1+len(query.Also), func(answer func(wire.Code, any)) func() {
		return s.leader.read(replica.Query(query), func(a replica.Answer, c wire.Code) { answer(c, answerToWire(a)) })
	})
}

func (s *memberStream) scan(q *request) {
	var query wire.ScanQuery
	if wire.Unmarshal(q.Body, &query) != nil || checkScan(replica.Scan(query)) != nil {
		q.answer(wire.CodeBad, nil)
		return
	}
	s.wait(q, 1, func(answer func(wire.Code, any)) func() {
		return s.leader.scan(replica.Scan(query), func(a replica.Scanned, c wire.Code) { answer(c, (*wire.Scanned)(&a)) })
	})
}

// forget drops a read that is under way.
func (s *memberStream) forget(id uint64) (r reading, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok = s.reads[id]
	delete(s.reads, id)
	s.keys -= r.keys
	return r, ok
}

// wait begins what answers q, a read of so many keys, maybe much later, and what
// the stream's end or a Cancel gives up.
func (s *memberStream) wait(q *request, keys int, begin func(answer func(wire.Code, any)) (cancel func())) {
	s.mu.Lock()
	if s.reads == nil {
		s.mu.Unlock()
		return
	}
	if _, taken := s.reads[q.ID]; taken {
		// The one under way could not be given up any more, and would wait
		// here for as long as this node leads.
		s.mu.Unlock()
		s.rpc.stop(errBadID)
		return
	}
	if len(s.reads) == maxReads || s.keys+keys > maxReadKeys {
		s.mu.Unlock()
		q.answer(wire.CodeBusy, nil)
		return
	}
	s.reads[q.ID] = reading{func() {}, keys}
	s.keys += keys
	s.mu.Unlock()
	cancel := begin(func(c wire.Code, v any) {
		s.forget(q.ID)
		var body []byte
		if c == wire.CodeOK && s.rpc.full() {
			// Many large answers in a row, for one key that many watch, say,
			// must not cost the member its stream.
			c = wire.CodeBusy
		}
		if c == wire.CodeOK {
			body = wire.Marshal(v)
		}
		q.answer(c, body)
	})
	s.mu.Lock()
	if _, waiting := s.reads[q.ID]; waiting {
		s.reads[q.ID] = reading{cancel, keys}
	}
	gone := s.reads == nil
	s.mu.Unlock()
	if gone {
		cancel()
	}
}

// cancels is the ID in a Cancel notice.
func (q *request) cancels() uint64 {
	var id uint64
	if wire.Unmarshal(q.Body, &id) != nil {
		return 0
	}
	return id
}

func sessionID(b []byte) (id machine.SessionID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return machine.SessionID(b), true
}

// clientCommand reports whether c is one that clients propose, and for which
// session.
func clientCommand(c machine.Command) (id machine.SessionID, ok bool) {
	switch c := c.(type) {
	case machine.Open:
		return c.Session, true
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
	}
	return id, false
}

// serveControl answers what any member may ask of any other.
func (n *Node) serveControl(c *port.Conn) {
	var wg sync.WaitGroup
	r := newRPC(c, func(q *request) {
		switch q.Type {
		case wire.Confirm:
			var req wire.ConfirmRequest
			if wire.Unmarshal(q.Body, &req) != nil {
				q.answer(wire.CodeBad, nil)
				return
			}
			q.answer(n.confirm(req), nil)
		case wire.Who:
			q.answer(wire.CodeOK, wire.Marshal(&wire.WhoAnswer{
				Name: n.cfg.Name, Boot: n.boot, Founding: n.founding.Load(), Hint: *n.hint(),
			}))
		case wire.Progress:
			rn := n.roles.current()
			if rn == nil {
				q.answer(wire.CodeNo, nil)
				return
			}
			q.answer(wire.CodeOK, wire.Marshal(&wire.ProgressAnswer{
				Raft: rn.id, Term: rn.term(), Last: rn.lastIndex(), Applied: rn.appliedIndex(),
			}))
		case wire.InConfig:
			var req wire.InConfigRequest
			l := n.leader.Load()
			if l == nil || wire.Unmarshal(q.Body, &req) != nil {
				q.answer(wire.CodeNotLeader, nil)
				return
			}
			l.rounds.add(func(ok bool) {
				switch {
				case !ok || l.changing.Load():
					// A change not committed yet may be undone.
					q.answer(wire.CodeNotLeader, nil)
				case slices.ContainsFunc(l.raft.servers(), func(s server) bool { return s.ID == req.Raft }):
					q.answer(wire.CodeOK, nil)
				default:
					q.answer(wire.CodeNo, nil)
				}
			})
		case wire.Prepare, wire.Accept, wire.Chosen, wire.Invite, wire.Removed:
			// These wait for a disk or for raft, and must not hold up the
			// stream, which carries Confirm too.
			wg.Go(func() { n.serveSlow(q) })
		default:
			q.answer(wire.CodeBad, nil)
		}
	})
	r.start()
	r.wg.Wait()
	wg.Wait()
}

func (n *Node) serveSlow(q *request) {
	ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
	defer cancel()
	switch q.Type {
	case wire.Invite:
		id, err := n.roles.invited(ctx)
		if err != nil {
			n.log.Warn("invitation to vote not followed", "error", err)
			q.answer(wire.CodeNo, nil)
			return
		}
		q.answer(wire.CodeOK, wire.Marshal(&wire.InviteAnswer{Raft: id, Durable: n.cfg.Dir != ""}))
	case wire.Removed:
		var req wire.RemovedNotice
		if wire.Unmarshal(q.Body, &req) != nil {
			q.answer(wire.CodeBad, nil)
			return
		}
		n.roles.do(ctx, func() { n.roles.removed(req.Raft) })
		q.answer(wire.CodeOK, nil)
	default:
		q.answer(n.foundingStep(q.Type, q.Body))
	}
}

// confirm answers a leader's round: yes if the raft it names runs here and its
// term is not above the leader's. Raft stores and publishes a higher term
// before it votes in it, so one atomic read is enough.
func (n *Node) confirm(req wire.ConfirmRequest) wire.Code {
	r := n.roles.current()
	if r == nil || r.id != req.Voter || r.term() > req.Term || r.store.Failed() != nil {
		return wire.CodeNo
	}
	return wire.CodeOK
}
