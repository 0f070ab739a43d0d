package voters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// stage is a Reconciler of the leader "a" with fake surroundings: raft, the term,
// gossip, and other members with or without answers.
type stage struct {
	t *testing.T
	r *Reconciler

	mu        sync.Mutex
	config    []member.Server
	index     uint64 // of the configuration
	leads     bool
	log       []string // the changes of the configuration, in order
	refuse    error    // if not nil, every change of the configuration fails
	sightings []member.Sighting
	deaf      map[string]bool // members without answers
	declines  map[string]bool // members refusing an invitation
	behind    map[string]bool // members with a raft far behind
	confirmed bool            // a majority confirms the term
	bound     uint64
	announced []uint64
	lifted    bool
	format    int
	hold      bool     // the leader's own commands wait
	told      []string // calls of Changed
}

const lastIndex = 1000

// onStage runs f in a bubble with a leader "a" and the given number of wanted
// voters. The founding wait is over, and a majority confirms.
func onStage(t *testing.T, want int, f func(s *stage), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t: t, leads: true, confirmed: true, bound: 2000, lifted: true, format: newest,
			deaf: make(map[string]bool), declines: make(map[string]bool), behind: make(map[string]bool),
		}
		cfg := Config{
			Self: member.Self{Name: "a", Boot: 1, Log: slog.New(slog.DiscardHandler)},
			Want: want, Format: newest,
			Raft: stageRaft{s}, Term: stageTerm{s}, Peers: stagePeers{s},
			Members: s.members, Locate: s.locate, Changed: s.changed,
		}
		for _, f := range change {
			f(&cfg)
		}
		s.r = New(cfg)
		s.vote("a")
		s.join("a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.r.Run(ctx) })
		f(s)
		cancel()
		s.r.Stop()
		wg.Wait()
	})
}

// vote makes the members of these names voters at once, under generation 1.
func (s *stage) vote(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.config = append(s.config, member.Server{ID: member.RaftID(name, 1), Voter: true})
	}
}

// join adds a process to gossip, alive from now on.
func (s *stage) join(name string, boot uint64, change ...func(*member.Sighting)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := seen(name, boot, change...)
	m.Since = time.Now()
	s.sightings = append(s.sightings, m)
}

// die has every process of a name die now.
func (s *stage) die(name string) {
	s.edit(name, func(m *member.Sighting) { m.Alive, m.Since = false, time.Now() })
	s.set(func() { s.deaf[name] = true })
}

func (s *stage) edit(name string, f func(*member.Sighting)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sightings {
		if s.sightings[i].Name == name {
			f(&s.sightings[i])
		}
	}
}

func (s *stage) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// voters lists the voters' raft IDs in order.
func (s *stage) voters() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, line := range s.config {
		if line.Voter {
			ids = append(ids, line.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// expect fails the test unless the voters are as given.
func (s *stage) expect(voters string) {
	s.t.Helper()
	if got := s.voters(); got != voters {
		s.t.Errorf("after %v: voters %q, want %q; changes: %q", time.Since(s.r.started), got, voters, s.log)
	}
}

// takes fails the test unless the voters become as given within a time limit, and
// returns the time needed.
func (s *stage) takes(limit time.Duration, voters string) time.Duration {
	s.t.Helper()
	start := time.Now()
	for s.voters() != voters {
		if time.Since(start) > limit {
			s.expect(voters)
			s.t.FailNow()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

func (s *stage) changes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, ", ")
}

// reported returns the calls of Changed.
func (s *stage) reported() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told, ", ")
}

// announcements returns the bounds told to every member.
func (s *stage) announcements() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.announced)
}

func (s *stage) members() []member.Sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sightings)
}

func (s *stage) locate(raftID string) (member.Process, error) {
	return member.Locate(s.members(), raftID)
}

func (s *stage) changed(c Change, p member.Process) {
	s.set(func() {
		s.told = append(s.told, fmt.Sprintf("%s %s", map[Change]string{Added: "+", Removed: "-"}[c], p.Name))
	})
}

// stageRaft is the leader's raft: every change is committed at once.
type stageRaft struct{ *stage }

func (s stageRaft) ID() string        { return "a#1" }
func (s stageRaft) LastIndex() uint64 { return lastIndex }

func (s stageRaft) Servers() []member.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.config)
}

func (s stageRaft) Leads(term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads && term == 5
}

func (s stageRaft) change(prev uint64, what, id string, f func(at int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if prev != s.index {
		return fmt.Errorf("the configuration is at %d, not at %d", s.index, prev)
	}
	if s.refuse != nil {
		return s.refuse
	}
	s.log = append(s.log, what+" "+id)
	s.index++
	f(slices.IndexFunc(s.config, func(line member.Server) bool { return line.ID == id }))
	return nil
}

func (s stageRaft) AddNonvoter(id string, prev uint64) error {
	return s.change(prev, "invite", id, func(int) { s.config = append(s.config, member.Server{ID: id}) })
}

func (s stageRaft) AddVoter(id string, prev uint64) error {
	return s.change(prev, "promote", id, func(at int) { s.config[at].Voter = true })
}

func (s stageRaft) Remove(id string, prev uint64) error {
	return s.change(prev, "remove", id, func(at int) { s.config = slices.Delete(s.config, at, at+1) })
}

func (s stageRaft) Transfer(context.Context) error {
	s.set(func() { s.log, s.leads = append(s.log, "transfer"), false })
	return nil
}

// stageTerm is term 5.
type stageTerm struct{ *stage }

func (s stageTerm) Number() uint64 { return 5 }

func (s stageTerm) Decide(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	s.mu.Lock()
	switch c := cmd.(type) {
	case machine.Bound:
		s.bound = c.TTL
	case machine.Raise:
		if !s.hold {
			s.format = int(c.Format)
		}
	}
	s.mu.Unlock()
	go done(machine.Outcome{Code: machine.OK}, wire.CodeOK)
}

func (s stageTerm) Confirm(done func(bool)) {
	s.mu.Lock()
	ok := s.confirmed
	s.mu.Unlock()
	go done(ok)
}

func (s stageTerm) AnnounceBound(ttl uint64) {
	s.set(func() { s.announced = append(s.announced, ttl) })
}

func (s stageTerm) Bound() (ttl uint64)      { s.set(func() { ttl = s.bound }); return }
func (s stageTerm) Lifted() (ok bool)        { s.set(func() { ok = s.lifted }); return }
func (s stageTerm) Format() (f int)          { s.set(func() { f = s.format }); return }
func (s stageTerm) ConfigIndex() (at uint64) { s.set(func() { at = s.index }); return }

// stagePeers answers for the other members.
type stagePeers struct{ *stage }

var errDeclined = errors.New("declined")

func (s stagePeers) AskInto(ctx context.Context, to member.Process, t wire.Type, _ []byte, v any) error {
	s.mu.Lock()
	deaf, declines, behind := s.deaf[to.Name], s.declines[to.Name], s.behind[to.Name]
	var id string
	for _, m := range s.sightings {
		if m.Process == to {
			id = member.RaftID(m.Name, m.Meta.Generation)
		}
	}
	s.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	switch t {
	case wire.Invite:
		if declines {
			return errDeclined
		}
		v.(*wire.InviteAnswer).Raft = id
	case wire.Progress:
		a := v.(*wire.ProgressAnswer)
		if a.Raft = id; !behind {
			a.Applied = lastIndex
		}
	}
	return nil
}

func (s stagePeers) Begin(_ context.Context, to member.Process, t wire.Type, body []byte, done func(wire.Frame, error)) {
	var notice wire.RemovedNotice
	if t == wire.Removed && wire.Unmarshal(body, &notice) == nil {
		s.set(func() { s.log = append(s.log, "tell "+to.Name+" of "+notice.Raft) })
	}
	done(wire.Frame{}, nil)
}
