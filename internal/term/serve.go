package term

import (
	"net"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// ServeMember serves the stream of a member, and returns when the stream has ended
// and all goroutines are joined. node and boot are the member's process, as proved
// by the stream. g is this node's knowledge of the leader.
func ServeMember(conn net.Conn, node string, boot uint64, g Guide) {
	m := &memberStream{node: node, boot: boot, guide: g}
	m.stream = stream.New(conn, m.handle)
	m.stream.Serve()
	if m.subscriber != nil {
		// Not by the goroutine that stops the stream: raft's, with an event for a member that
		// reads nothing, must not look for the heirs of a hundred thousand sessions.
		m.term.Quit(m.subscriber)
	}
	m.finds.Wait()
	m.mu.Lock()
	reads := m.reads.m
	m.reads, m.over = fitMap[uint64, *pendingRead]{}, true
	m.mu.Unlock()
	for _, r := range reads {
		r.cancel()
	}
}

// maxReads bounds a stream's pending reads, below stream.MaxServing: waiting reads leave
// room for the member's beats.
const maxReads = stream.MaxServing / 2

// memberStream is the leader's end of a member's stream. The stream belongs to the
// term of the first Attach.
type memberStream struct {
	node    string
	boot    uint64
	guide   Guide
	stream  *stream.Stream
	finds   sync.WaitGroup // questions for the leader that wait for news
	finding atomic.Bool    // such a question waits

	// Used by handle only, on the stream's reading goroutine.
	proof      *wire.KeyProof // of the stream's session keys; nil: none shown
	disproved  bool           // a proof did not hold: no other is looked at
	dirShown   bool           // a proof of a directory was looked at: no other is
	term       *Term          // nil before Attach
	subscriber *Subscriber
	placed     []placed // requests that may wait in the member's lane, in ascending order of both numbers

	mu    sync.Mutex
	reads fitMap[uint64, *pendingRead] // the reads without an answer yet, by request ID
	over  bool                         // the stream has ended
}

func (m *memberStream) handle(q *stream.Request) {
	switch q.Type {
	case wire.Attach:
		m.attach(q)
		return
	case wire.Find:
		m.find(q)
		return
	}
	if m.term == nil {
		q.Answer(wire.CodeBad, nil)
		m.stream.Stop(stream.ErrClosed)
		return
	}
	switch q.Type {
	case wire.Propose:
		m.propose(q)
	case wire.Beat:
		if id, ok := sessionID(q); ok {
			m.term.Beat(m.subscriber, id, func(c wire.Code) {
				q.Answer(c, m.term.encodedSummary(c))
			})
		}
	case wire.Summarize:
		m.startRead(q, func(answer func([]byte, wire.Code)) func() {
			m.term.confirmThen(wire.CodeOK, func(c wire.Code) { answer(m.term.encodedSummary(c), c) })
			return func() {}
		})
	case wire.Read:
		m.read(q)
	case wire.Scan:
		m.scan(q)
	case wire.Values:
		m.values(q)
	case wire.Sessions:
		m.sessions(q)
	case wire.Cancel:
		var id uint64
		if wire.Unmarshal(q.Body, &id) != nil {
			return
		}
		if r := m.remove(id); r != nil {
			r.cancel()
			return
		}
		m.takeBack(id)
	case wire.Ready:
		// A read as any other: the wait may last for long, and ends with the stream.
		m.startRead(q, func(answer func([]byte, wire.Code)) func() {
			return m.term.Granting(func(c wire.Code) { answer(nil, c) })
		})
	case wire.Detach:
		if id, ok := sessionID(q); ok {
			m.term.Detach(m.subscriber, id)
		}
	case wire.Describe:
		var meta member.Metadata
		if wire.Unmarshal(q.Body, &meta) != nil || meta.Check() != nil {
			return // no member has this description
		}
		m.term.describe(m.subscriber, meta)
	case wire.Depart:
		var req wire.DepartRequest
		if wire.Unmarshal(q.Body, &req) != nil || req.Name != m.node || req.Boot != m.boot {
			q.Answer(wire.CodeBad, nil) // a process asks for itself alone
			return
		}
		if m.guide.Shared && m.guide.Mere { // nobody knows which process asks, and no voter does
			m.term.cfg.Refused.Note(refused.Role, m.subscriber.from(), "a vote is given up under a certificate without a name and without the voter role")
			q.Answer(wire.CodeBad, nil)
			return
		}
		m.term.Depart(req.Name, req.Boot, func(c wire.Code) { q.Answer(c, nil) })
	default:
		q.Answer(wire.CodeBad, nil)
	}
}

func (m *memberStream) attach(q *stream.Request) {
	var req wire.AttachRequest
	if wire.Unmarshal(q.Body, &req) != nil || len(req.Keys)+len(req.New) > wire.MaxAttach {
		q.Answer(wire.CodeBad, nil)
		return
	}
	if m.term == nil && !m.join(req.Term) {
		hint := m.guide.Hint()
		q.Answer(wire.CodeNotLeader, wire.Marshal(&hint))
		return
	}
	if req.Proof != nil && m.guide.Bound != nil && m.proof == nil && !m.disproved {
		if !req.Proof.Holds(m.guide.Bound) {
			m.disproved = true // one look at a signature for each stream
			m.term.refuse(m.subscriber, "a proof of session keys that was made for another stream")
			q.Answer(wire.CodeBad, nil)
			return
		}
		m.proof = req.Proof
		m.term.proved(m.subscriber, req.Proof.Signer)
	}
	if req.Dir != nil && !m.dirShown {
		m.dirShown = true // one look at a signature for each stream
		if !req.Dir.Holds(m.guide.Bound) {
			m.term.refuse(m.subscriber, "a proof of a directory that was made for another stream")
			q.Answer(wire.CodeBad, nil)
			return
		}
		m.subscriber.Dir = req.Dir.ID()
	}
	ok := m.term.attach(m.subscriber, m.proved(req.Keys), m.proved(req.New), func() {
		q.Answer(wire.CodeOK, wire.Marshal(&wire.AttachAnswer{
			Term: m.term.Number(), TTL: m.term.Bound(), Members: m.term.Members(), Voters: m.guide.Hint().Voters,
		}))
	})
	if !ok {
		q.Answer(wire.CodeBusy, nil)
	}
}

// proved returns the keys that count on the stream: all keys without TLS, and otherwise those
// that the stream's signer has sealed. The others are as good as not shown.
func (m *memberStream) proved(keys []machine.SessionKey) []machine.SessionKey {
	if m.guide.Bound == nil {
		return keys
	}
	shown := len(keys)
	keys = slices.DeleteFunc(keys, func(k machine.SessionKey) bool { return !m.proof.Sealed(k) })
	if len(keys) < shown {
		m.term.refuse(m.subscriber, "session keys of another process")
	}
	return keys
}

// join makes the stream a subscriber of the present term. join reports false if
// this node does not lead, or leads in an older term than seen, the member's
// highest term so far: such a leader is deposed and does not know yet.
func (m *memberStream) join(seen uint64) bool {
	t := m.guide.Current()
	if t == nil || t.Number() < seen {
		return false
	}
	s := &Subscriber{
		Node: m.node, Boot: m.boot, From: m.guide.From, Shared: m.guide.Shared, Mere: m.guide.Mere,
		Event: func(e machine.Event) {
			m.stream.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: machine.AppendEvent(nil, e)} })
		},
		Later: func(e func() machine.Event) {
			m.stream.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: machine.AppendEvent(nil, e())} })
		},
		Bound:  func(a wire.AttachAnswer) { m.stream.Notify(wire.Bound, wire.Marshal(&a)) },
		Voters: func(set wire.VoterSet) { m.stream.Notify(wire.Voters, wire.Marshal(&set)) },
		Stop:   func() { m.stream.Stop(stream.ErrClosed) },
		Keep:   m.stream.Keep,
	}
	if !t.Join(s) {
		return false
	}
	m.term, m.subscriber = t, s
	return true
}

// propose decodes the command once; the received bytes go into the log.
func (m *memberStream) propose(q *stream.Request) {
	cmd, err := machine.DecodeCommand(q.Body)
	if err != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	place := m.term.propose(m.subscriber, cmd, q.Body, func(o machine.Outcome, c wire.Code) { answerOutcome(q, o, c) })
	if place != 0 {
		m.note(placed{q.ID, place})
	}
}

// answerOutcome answers a Propose. Mostly the answer leaves at once, and takes no memory.
func answerOutcome(q *stream.Request, o machine.Outcome, c wire.Code) {
	buf := wire.Buffer()
	*buf = appendOutcome(*buf, o, c)
	sent := q.AnswerNow(c, *buf)
	wire.Free(buf)
	if !sent {
		answerOutcomeLater(q, o, c)
	}
}

func answerOutcomeLater(q *stream.Request, o machine.Outcome, c wire.Code) {
	q.AnswerLater(c, func() []byte { return appendOutcome(nil, o, c) })
}

func appendOutcome(dst []byte, o machine.Outcome, c wire.Code) []byte {
	switch c {
	case wire.CodeOK:
		return machine.AppendOutcome(dst, o)
	case wire.CodeDenied:
		return append(dst, o.Value...)
	}
	return dst
}

// placed is a proposed request with the place of its command in the member's lane.
type placed struct{ request, place uint64 }

// note keeps p, for takeBack. Requests whose commands were taken by an entry are dropped
// when there is no room for p, so the list is hardly longer than the lane.
func (m *memberStream) note(p placed) {
	if n := len(m.placed); n > 0 && p.request <= m.placed[n-1].request {
		return // not a stream of package link: its requests cannot be taken back
	}
	if len(m.placed) == cap(m.placed) {
		oldest := m.term.proposer.oldest(m.node)
		i := sort.Search(len(m.placed), func(i int) bool { return m.placed[i].place >= oldest })
		m.placed = m.placed[:copy(m.placed, m.placed[i:])]
		if len(m.placed) == 0 && cap(m.placed) > maxSpareQueue {
			m.placed = nil
		}
		m.placed = slices.Grow(m.placed, max(16, len(m.placed)))
	}
	m.placed = append(m.placed, p)
}

// takeBack takes the command of a request back, if it waits: see Term.TakeBack.
func (m *memberStream) takeBack(request uint64) {
	i := sort.Search(len(m.placed), func(i int) bool { return m.placed[i].request >= request })
	if i < len(m.placed) && m.placed[i].request == request {
		m.term.TakeBack(m.subscriber, m.placed[i].place)
	}
}

func (m *memberStream) read(q *stream.Request) {
	var query replica.Query
	if wire.Unmarshal(q.Body, &query) != nil || query.Check() != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	m.startRead(q, func(answer func([]byte, wire.Code)) func() {
		return read(m.term, m.node, query, encoded[replica.Answer], answer)
	})
}

func (m *memberStream) scan(q *stream.Request) {
	var query replica.Scan
	if wire.Unmarshal(q.Body, &query) != nil || query.Check() != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	m.startRead(q, func(answer func([]byte, wire.Code)) func() {
		return scan(m.term, m.node, query, encoded[replica.Scanned], answer)
	})
}

// pendingRead is a read without an answer yet.
type pendingRead struct{ cancel func() }

// remove drops a pending read; nil: there is none of that ID.
func (m *memberStream) remove(id uint64) *pendingRead {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.reads.m[id]
	m.reads.delete(id)
	return r
}

// removeAnswered drops r, unless it was cancelled: its ID may be another read's by then.
func (m *memberStream) removeAnswered(id uint64, r *pendingRead) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reads.m[id] == r {
		m.reads.delete(id)
	}
}

// startRead registers q as a pending read and calls start. The answer may come much
// later. The read is cancelled when the member sends Cancel or the stream ends.
func (m *memberStream) startRead(q *stream.Request, start func(answer func([]byte, wire.Code)) (cancel func())) {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return
	}
	if m.reads.has(q.ID) {
		// Nothing could cancel the pending read of the same ID any more: the
		// read would wait for as long as this node leads.
		m.mu.Unlock()
		m.stream.Stop(stream.ErrBadID)
		return
	}
	if m.reads.len() == maxReads {
		m.mu.Unlock()
		q.Answer(wire.CodeBusy, nil)
		return
	}
	r := &pendingRead{cancel: func() {}}
	m.reads.set(q.ID, r)
	m.mu.Unlock()
	cancel := start(func(body []byte, c wire.Code) {
		m.removeAnswered(q.ID, r)
		if c == wire.CodeOK && m.stream.Full(len(body)) {
			// Many large answers in a row, for example about a much watched
			// key, must not cost the member the stream.
			c, body = wire.CodeBusy, nil
		}
		q.Answer(c, body)
	})
	m.mu.Lock()
	r.cancel = cancel
	ended := m.over
	m.mu.Unlock()
	if ended {
		cancel()
	}
}

// sessionID returns the body of q as a session's ID, or answers CodeBad.
func sessionID(q *stream.Request) (id machine.SessionID, ok bool) {
	if len(q.Body) != len(id) {
		q.Answer(wire.CodeBad, nil)
		return id, false
	}
	return machine.SessionID(q.Body), true
}
