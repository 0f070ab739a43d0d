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

// ttl is the bound told by every leader.
const ttl = 2 * time.Second

// stage is the Link of the member "me" with fake surroundings: other members,
// leading or not, gossip, and the node's events.
type stage struct {
	t    *testing.T
	k    *Link
	done chan struct{} // the node stops

	mu          sync.Mutex
	cluster     machine.ClusterID
	leading     Leader
	guess       string // the address of raft's leader, in term 9
	voters      []string
	others      []string
	members     []member.Sighting
	description string
	gossiped    wakeup.All
	hosts       map[string]*host // by address

	unreachable map[string]bool  // addresses, directly
	liars       map[string]*host // relays that answer themselves, for any address
	dials       []string
	events      []string
}

// onStage runs f in a bubble with a running Link and no known member. The
// bubble fails the test if a goroutine is left behind.
func onStage(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	onStageIn(t, machine.ClusterID{1}, f)
}

// onStageIn is onStage for a member of the given cluster, zero for none.
func onStageIn(t *testing.T, cluster machine.ClusterID, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, done: make(chan struct{}), cluster: cluster, hosts: make(map[string]*host), unreachable: make(map[string]bool)}
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
			Guess: func() (p member.Process, term uint64, ok bool) {
				s.set(func() { p.Name, p.Addr, ok = s.guess, s.guess, s.guess != "" })
				return p, 9, ok
			},
			Votes: func() (votes bool) {
				s.set(func() { votes = slices.Contains(s.voters, "me") })
				return votes
			},
			VoterAddrs: func() (all []string) {
				s.set(func() { all = slices.Clone(s.voters) })
				return all
			},
			OtherAddrs: func() (all []string) {
				s.set(func() { all = slices.Clone(s.others) })
				return all
			},
			Members: func() (all []member.Sighting) {
				s.set(func() { all = slices.Clone(s.members) })
				return all
			},
			Claimants: func() (some []member.Sighting, living int) {
				s.set(func() { some, living = slices.Clone(s.members), len(s.members) })
				return slices.DeleteFunc(some, func(m member.Sighting) bool { return !m.Meta.Voter && m.Meta.Leads == 0 }), living
			},
			Gossiped: s.gossiped.Wait,
			Proved:   s.gossiped.Wait,
			Dial:     s.dial,
			Signer:   wire.NewKeySigner(),
			Describe: func() (b []byte) { s.set(func() { b = []byte(s.description) }); return },
			Explain:  func() string { return "the reason" },
			Voters:   func(machine.ClusterID, wire.VoterSet) {},
			Done:     s.done,
			Guests:   replica.NewGuests(),
			AllEnd:   func() bool { return false },
			Cause:    func() error { return replica.ErrStopped },
			LeaderChanged: func(p member.Process, term uint64) {
				s.event(fmt.Sprintf("%s at %s leads term %d", p.Name, p.Addr, term))
			},
			QuorumLost:     func(detail string) { s.event("quorum lost: " + detail) },
			QuorumRegained: func() { s.event("quorum regained") },
		})
		ctx, cancel := context.WithCancel(t.Context())
		s.k.Claim(key(1)) // the session of most requests
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

// settle waits for the questions under way: each begins after a delay of a
// millisecond for each member.
func (s *stage) settle() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// attachedTo fails the test unless the leader of this name serves the Link.
func (s *stage) attachedTo(name string) {
	s.t.Helper()
	s.settle()
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

// dial reaches hosts[to.Addr], or waits in vain for a host in unreachable. Any host
// relays to any other host.
func (s *stage) dial(ctx context.Context, to member.Process, via string) (Way, error) {
	s.mu.Lock()
	addr := to.Addr
	if via != "" {
		addr += "/" + via
	}
	s.dials = append(s.dials, addr)
	h := s.hosts[to.Addr]
	silent := via == "" && s.unreachable[to.Addr]
	if via != "" && s.hosts[via] == nil {
		h = nil
	}
	if liar := s.liars[via]; liar != nil {
		h = liar
	}
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return Way{}, context.Cause(ctx)
	}
	if h == nil {
		return Way{}, errors.New("nobody there")
	}
	h.mu.Lock()
	wait := h.far
	h.mu.Unlock()
	time.Sleep(wait)
	near, far := net.Pipe()
	h.accept(far)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fickle {
		h.name = fmt.Sprint("x", len(h.streams))
	}
	return Way{Conn: near, Name: h.name, Named: h.named, Voter: !h.mere, Bound: []byte("stream to " + h.name), Renew: h.renew}, nil
}

// A host is another member. Its address is its name.
type host struct {
	name string

	mu        sync.Mutex
	term      uint64 // the term of its leadership, or 0
	hint      string // the address in its hints
	told      uint64 // the term in its hints
	votes     bool   // keeps questions until there is news
	heard     bool   // hears the leader of its hints
	finds     []wire.FindRequest
	held      []*stream.Request // questions for the leader
	ttl       uint64
	attaches  []wire.AttachRequest
	requests  []*stream.Request // all others, in the order of arrival
	answer    func(q *stream.Request)
	streams   []*stream.Stream
	described []string
	frozen    bool          // answers nothing
	crowded   int           // as many requests of Attach after the first are answered Busy
	small     int           // answers an Attach of more keys Busy; 0: none
	mute      bool          // or not at all
	full      bool          // answers each question for the leader Busy
	list      []string      // the voters that it tells
	slow      time.Duration // until it looks at a question for the leader
	far       time.Duration // to dial it takes so long
	restless  bool          // tells a higher term each time
	fickle    bool          // has another name on each stream
	rising    bool          // leads in a higher term at each Attach
	coy       int           // refuses so many Attaches, and tells of itself
	mere      bool          // its streams prove no voter role
	named     bool          // they prove its name
	renew     chan struct{} // of new streams; nil: never closed
}

// host adds a member. The member leads in the given term, unless that is 0, and
// answers every request with CodeOK and an empty body.
func (s *stage) host(name string, term uint64) *host {
	h := &host{name: name, term: term, ttl: uint64(ttl / time.Millisecond), answer: func(q *stream.Request) { q.Answer(wire.CodeOK, nil) }}
	s.set(func() { s.hosts[name] = h })
	return h
}

// set changes h, of which the member may know already.
func (h *host) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
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
func pipeTo(h *host) func(context.Context, member.Process, string) (Way, error) {
	return func(context.Context, member.Process, string) (Way, error) {
		near, far := net.Pipe()
		st := stream.New(far, func(q *stream.Request) {
			if q.Type != wire.Describe {
				h.answer(q)
			}
		})
		st.Start()
		h.mu.Lock()
		h.streams = append(h.streams, st)
		h.mu.Unlock()
		return Way{Conn: near, Name: h.name, Voter: true}, nil
	}
}

func (h *host) handle(q *stream.Request) {
	h.mu.Lock()
	if h.frozen {
		h.mu.Unlock()
		return
	}
	if q.Type == wire.Describe {
		h.described = append(h.described, string(q.Body))
		h.mu.Unlock()
		return
	}
	if q.Type == wire.Find {
		slow := h.slow
		h.mu.Unlock()
		if slow > 0 {
			time.AfterFunc(slow, func() { h.find(q) })
			return
		}
		h.find(q)
		return
	}
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
	if n := len(req.Keys) + len(req.New); h.small > 0 && n > h.small {
		if !h.mute {
			q.Answer(wire.CodeBusy, nil)
		}
		return
	}
	h.attaches = append(h.attaches, req)
	if h.rising {
		h.term++
	}
	if h.crowded > 0 && len(h.attaches) > 1 {
		h.crowded--
		q.Answer(wire.CodeBusy, nil)
		return
	}
	if h.coy > 0 {
		h.coy--
		q.Answer(wire.CodeNotLeader, wire.Marshal(new(h.hintLocked())))
		return
	}
	if h.term == 0 || h.term < req.Term {
		q.Answer(wire.CodeNotLeader, wire.Marshal(new(h.hintLocked())))
		return
	}
	q.Answer(wire.CodeOK, wire.Marshal(&wire.AttachAnswer{Term: h.term, TTL: h.ttl, Voters: h.list}))
}

func (h *host) hintLocked() wire.Hint {
	if h.term != 0 {
		return wire.Hint{Term: h.term, Leader: h.name, Addr: h.name, Votes: h.votes, Voters: h.list}
	}
	if h.restless {
		h.told++
	}
	return wire.Hint{Term: h.told, Leader: h.hint, Addr: h.hint, Votes: h.votes}
}

// find answers a question for the leader as term.Guide does.
func (h *host) find(q *stream.Request) {
	var req wire.FindRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		return
	}
	if h.full {
		q.Answer(wire.CodeBusy, nil)
		return
	}
	if req.Wait != 0 {
		h.finds = append(h.finds, req)
	}
	hint := h.hintLocked()
	news := hint.Leader != "" && (hint.Term > req.Above || req.Lost && hint.Term == req.Above && (h.heard || h.term != 0))
	if news || !h.votes || req.Wait == 0 {
		q.Answer(wire.CodeOK, wire.Marshal(&hint))
		return
	}
	h.held = append(h.held, q)
	time.AfterFunc(time.Duration(req.Wait)*time.Millisecond, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if i := slices.Index(h.held, q); i >= 0 {
			h.held = slices.Delete(h.held, i, i+1)
			q.Answer(wire.CodeOK, wire.Marshal(new(h.hintLocked())))
		}
	})
}

// release has the member look at the held questions again.
func (h *host) release() {
	h.mu.Lock()
	held := h.held
	h.held = nil
	h.mu.Unlock()
	for _, q := range held {
		h.find(q)
	}
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
	h.term = term
	h.mu.Unlock()
	h.release()
}

// freeze has the member answer nothing any more.
func (h *host) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = true
}

// tell changes the leader in the member's hints.
func (h *host) tell(leader string, term uint64) {
	h.mu.Lock()
	h.hint, h.told = leader, term
	h.mu.Unlock()
	h.release()
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
	shown      []machine.SessionID // before their Open
	detached   []machine.SessionID
	takenBack  []uint64 // places
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

func (o *ownTerm) Attach(_ *term.Subscriber, keys, fresh []machine.SessionKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = append(o.sessions, ids(keys)...)
	o.shown = append(o.shown, ids(fresh)...)
	return true
}

func (o *ownTerm) Show(s *term.Subscriber, fresh ...machine.SessionKey) { o.Attach(s, nil, fresh) }

func (o *ownTerm) Detach(_ *term.Subscriber, id machine.SessionID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.detached = append(o.detached, id)
}

func (o *ownTerm) Propose(_ *term.Subscriber, _ machine.Command, done func(machine.Outcome, wire.Code)) (place uint64) {
	if !o.hung {
		done(machine.Outcome{}, o.code)
		return 0
	}
	return hungPlace
}

// hungPlace is the place of a command that an ownTerm does not answer.
const hungPlace = 7

func (o *ownTerm) TakeBack(_ *term.Subscriber, place uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takenBack = append(o.takenBack, place)
}

func key(b byte) machine.SessionKey { return machine.SessionKey{b} }

func sid(b byte) machine.SessionID { return key(b).ID() }

func ids(keys []machine.SessionKey) (out []machine.SessionID) {
	for _, k := range keys {
		out = append(out, k.ID())
	}
	return out
}

// attach claims a session and attaches it, as if its Open had been answered.
func (s *stage) attach(key machine.SessionKey, sink func(machine.Event)) {
	s.k.Claim(key)
	s.k.Attach(key.ID(), sink)
}
