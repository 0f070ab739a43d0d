package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// stage is the Link of the member "me" with fake surroundings: other members,
// leading or not, gossip, and the node's events.
type stage struct {
	t    *testing.T
	k    *Link
	done chan struct{} // the node stops

	mu       sync.Mutex
	cluster  machine.ClusterID
	leading  Leader
	guess    string // the address of raft's leader
	members  []member.Sighting
	gossiped wakeup.All
	hosts    map[string]*host // by address
	dials    []string
	events   []string
}

// onStage runs f in a bubble with a running Link and no known member. The
// bubble fails the test if a goroutine is left behind.
func onStage(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, done: make(chan struct{}), cluster: machine.ClusterID{1}, hosts: make(map[string]*host)}
		s.k = New(Config{
			Self: member.Self{Name: "me", Boot: 7, Addr: "me", Log: slog.New(slog.DiscardHandler)},
			TTL:  3 * time.Second,
			Cluster: func() (id machine.ClusterID) {
				s.set(func() { id = s.cluster })
				return id
			},
			Leading: func() (l Leader) {
				s.set(func() { l = s.leading })
				return l
			},
			Guess: func() (p member.Process, ok bool) {
				s.set(func() { p.Addr, ok = s.guess, s.guess != "" })
				return p, ok
			},
			Members: func() (all []member.Sighting) {
				s.set(func() { all = slices.Clone(s.members) })
				return all
			},
			Gossiped: s.gossiped.Wait,
			Dial:     s.dial,
			Explain:  func() string { return "the reason" },
			Done:     s.done,
			Cause:    func() error { return replica.ErrStopped },
			LeaderChanged: func(p member.Process, term uint64) {
				s.event(fmt.Sprintf("%s at %s leads term %d", p.Name, p.Addr, term))
			},
			QuorumLost:     func(detail string) { s.event("quorum lost: " + detail) },
			QuorumRegained: func() { s.event("quorum regained") },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.k.Run(ctx) })
		synctest.Wait() // the first search is over
		f(t, s)
		cancel()
		wg.Wait()
		for _, h := range s.hosts {
			h.crash()
		}
	})
}

func (s *stage) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stage) event(text string) { s.set(func() { s.events = append(s.events, text) }) }

// told returns the events so far.
func (s *stage) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, ", ")
}

// dialled returns the addresses dialled since the last call.
func (s *stage) dialled() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.dials, " ")
	s.dials = nil
	return out
}

// gossip makes a member known, or changes its metadata, and wakes the Link.
func (s *stage) gossip(name string, change ...func(*member.Metadata)) {
	s.know(name, change...)
	s.gossiped.Wake()
}

// know is gossip without waking the Link.
func (s *stage) know(name string, change ...func(*member.Metadata)) {
	s.set(func() {
		m := member.Sighting{Process: member.Process{Name: name, Boot: 1, Addr: name}, Alive: true}
		for _, f := range change {
			f(&m.Meta)
		}
		s.members = slices.DeleteFunc(s.members, func(o member.Sighting) bool { return o.Name == name })
		s.members = append(s.members, m)
	})
}

func leads(term uint64) func(*member.Metadata) { return func(m *member.Metadata) { m.Leads = term } }
func votes(m *member.Metadata)                 { m.Voter = true }

// lead has this node lead, or lead no more.
func (s *stage) lead(l *ownTerm) {
	s.set(func() {
		s.leading = nil
		if l != nil {
			s.leading = l
		}
	})
	s.k.Wake()
}

// attachedTo fails the test unless the leader of this name serves the Link.
func (s *stage) attachedTo(name string) {
	s.t.Helper()
	synctest.Wait()
	if got, addr, ok := s.k.Leader(); got != name || addr != name || ok != (name != "") {
		s.t.Errorf("attached to %q at %q, %v; want %q", got, addr, ok, name)
	}
}

// within returns a context of length d.
func (s *stage) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) dial(ctx context.Context, addr string) (net.Conn, string, error) {
	s.mu.Lock()
	s.dials = append(s.dials, addr)
	h := s.hosts[addr]
	s.mu.Unlock()
	if h == nil {
		return nil, "", errors.New("nobody there")
	}
	near, far := net.Pipe()
	h.accept(far)
	return near, h.name, nil
}

// A host is another member. Its address is its name.
type host struct {
	name string

	mu       sync.Mutex
	term     uint64 // the term of its leadership, or 0
	hint     string // the address in its hints
	ttl      uint64
	attaches []wire.AttachRequest
	requests []*stream.Request // all others, in the order of arrival
	answer   func(q *stream.Request)
	streams  []*stream.Stream
}

// host adds a member. The member leads in the given term, unless that is 0, and
// answers every request with CodeOK and an empty body.
func (s *stage) host(name string, term uint64) *host {
	h := &host{name: name, term: term, ttl: 2000, answer: func(q *stream.Request) { q.Answer(wire.CodeOK, nil) }}
	s.set(func() { s.hosts[name] = h })
	return h
}

func (h *host) accept(conn net.Conn) {
	st := stream.New(conn, h.handle)
	st.Start()
	h.mu.Lock()
	h.streams = append(h.streams, st)
	h.mu.Unlock()
}

// pipeTo returns a dial function to h alone. H answers Attach like every other
// request.
func pipeTo(h *host) func(context.Context, string) (net.Conn, string, error) {
	return func(context.Context, string) (net.Conn, string, error) {
		near, far := net.Pipe()
		st := stream.New(far, h.answer)
		st.Start()
		h.mu.Lock()
		h.streams = append(h.streams, st)
		h.mu.Unlock()
		return near, h.name, nil
	}
}

func (h *host) handle(q *stream.Request) {
	h.mu.Lock()
	if q.Type != wire.Attach {
		h.requests = append(h.requests, q)
		answer := h.answer
		h.mu.Unlock()
		answer(q)
		return
	}
	defer h.mu.Unlock()
	var req wire.AttachRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	h.attaches = append(h.attaches, req)
	if h.term == 0 || h.term < req.Term {
		q.Answer(wire.CodeNotLeader, wire.Marshal(&wire.Hint{Addr: h.hint}))
		return
	}
	q.Answer(wire.CodeOK, wire.Marshal(&wire.AttachAnswer{Term: h.term, TTL: h.ttl}))
}

// setAnswer changes how the member answers requests.
func (h *host) setAnswer(f func(q *stream.Request)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = f
}

func with(c wire.Code) func(*stream.Request) { return func(q *stream.Request) { q.Answer(c, nil) } }
func silence(*stream.Request)                {}

// serve has the member lead in a term.
func (h *host) serve(term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term = term
}

// resign has the member lead no more, and end its streams.
func (h *host) resign() {
	h.mu.Lock()
	h.term = 0
	h.mu.Unlock()
	h.crash()
}

// crash ends the member's streams.
func (h *host) crash() {
	h.mu.Lock()
	streams := h.streams
	h.streams = nil
	h.mu.Unlock()
	for _, st := range streams {
		st.Close()
	}
}

// stream returns the newest stream to the member.
func (h *host) stream() *stream.Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[len(h.streams)-1]
}

// received returns the types of the requests so far.
func (h *host) received() (types []wire.Type) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.requests {
		types = append(types, q.Type)
	}
	return types
}

// ownTerm is the term of this node's own leadership. The answer to every command is
// code.
type ownTerm struct {
	Leader
	number uint64
	code   wire.Code
	hung   bool // commands are not answered
	ended  chan struct{}

	mu         sync.Mutex
	subscriber *term.Subscriber
	sessions   []machine.SessionID
	quits      int
}

func newOwnTerm(number uint64) *ownTerm {
	return &ownTerm{number: number, code: wire.CodeOK, ended: make(chan struct{})}
}

func (o *ownTerm) Number() uint64        { return o.number }
func (o *ownTerm) Bound() uint64         { return 4000 }
func (o *ownTerm) Done() <-chan struct{} { return o.ended }

func (o *ownTerm) Join(s *term.Subscriber) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscriber = s
	return true
}

func (o *ownTerm) Quit(*term.Subscriber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quits++
}

func (o *ownTerm) Attach(_ *term.Subscriber, ids []machine.SessionID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = append(o.sessions, ids...)
}

func (o *ownTerm) Propose(_ *term.Subscriber, _ machine.Command, done func(machine.Outcome, wire.Code)) {
	if !o.hung {
		done(machine.Outcome{}, o.code)
	}
}

func sid(b byte) machine.SessionID { return machine.SessionID{b} }
