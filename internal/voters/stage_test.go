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
	"github.com/wardmote/wardmote/internal/wakeup"
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
	stays     map[string]bool // members that say that they do not leave
	behind    map[string]bool // members with a raft far behind
	confirmed bool            // a majority confirms the term
	bound     uint64
	announced []uint64
	lifted    bool
	format    int
	hold      bool // the leader's own commands wait
	told      []wire.VoterSet
	cut       map[string]time.Time // members that raft does not reach, since
	missed    map[string]time.Time // by raft ID: the former leader's words
	ends      []string             // raft IDs of processes that have ended
	ended     map[member.Process]bool
	suspected []string
	gossiped  wakeup.All
	proved    wakeup.All
	contacted wakeup.One
	attached  wakeup.One
	said      map[member.Process]member.Metadata // own descriptions that differ from gossip; zero: not attached
}

// onStage runs f in a bubble with a leader "a" and the given number of wanted
// voters. The founding wait is over, and a majority confirms.
func onStage(t *testing.T, want int, f func(s *stage), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t: t, leads: true, confirmed: true, bound: 2000, lifted: true, format: newest,
			deaf: make(map[string]bool), declines: make(map[string]bool), stays: make(map[string]bool), behind: make(map[string]bool),
			cut: make(map[string]time.Time), missed: make(map[string]time.Time), ended: make(map[member.Process]bool),
			contacted: wakeup.NewOne(), attached: wakeup.NewOne(), said: make(map[member.Process]member.Metadata),
		}
		cfg := Config{
			Self: member.Self{Name: "a", Boot: 1, Log: slog.New(slog.DiscardHandler)},
			Want: want, Format: newest,
			Raft: stageRaft{s}, Term: stageTerm{s}, Peers: stagePeers{s},
			Members: s.members, Locate: s.locate,
			Gossiped: s.gossiped.Wait, Proved: s.proved.Wait, Ended: s.hasEnded,
			Suspect: func(p member.Process) { s.set(func() { s.suspected = append(s.suspected, p.Name) }) },
			Missed:  func(id string) (at time.Time) { s.set(func() { at = s.missed[id] }); return },
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
		defer func() {
			cancel()
			s.r.Stop()
			wg.Wait()
		}()
		f(s)
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
	s.gossiped.Wake()
}

// die has every process of a name die now: gossip knows, and raft reaches it no more.
func (s *stage) die(name string) {
	s.edit(name, func(m *member.Sighting) { m.Alive, m.Since = false, time.Now() })
	s.sever(name)
}

// sever cuts raft and streams off from a member now. Gossip goes on.
func (s *stage) sever(name string) {
	s.set(func() { s.deaf[name], s.cut[name] = true, time.Now() })
	s.contacted.Wake()
}

// reach makes raft and streams reach a member again.
func (s *stage) reach(name string) {
	s.set(func() { delete(s.deaf, name); delete(s.cut, name) })
	s.contacted.Wake()
}

// finish ends the process of a raft ID of generation 1, and proves it.
func (s *stage) finish(name string, boot uint64) {
	s.set(func() { s.ends = append(s.ends, member.RaftID(name, 1)) })
	s.contacted.Wake()
	s.prove(name, boot)
}

// prove has the end of a process proved, which may go on: then the proof was forged.
func (s *stage) prove(name string, boot uint64) {
	s.set(func() { s.ended[member.Process{Name: name, Boot: boot}] = true })
	s.proved.Wake()
}

func (s *stage) hasEnded(name string, boot uint64) (ended bool) {
	s.set(func() { ended = s.ended[member.Process{Name: name, Boot: boot}] })
	return ended
}

func (s *stage) edit(name string, f func(*member.Sighting)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sightings {
		if s.sightings[i].Name == name {
			f(&s.sightings[i])
		}
	}
	s.gossiped.Wake()
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

// lastTold returns the state of the voters as announced last.
func (s *stage) lastTold() (set wire.VoterSet) {
	s.set(func() {
		if len(s.told) > 0 {
			set = s.told[len(s.told)-1]
		}
	})
	return set
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

// stageRaft is the leader's raft: every change is committed at once.
type stageRaft struct{ *stage }

func (s stageRaft) ID() string { return "a#1" }

func (s stageRaft) Servers() []member.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.config)
}

func (s stageRaft) Contact(id string) member.Contact {
	name, _, _ := member.ParseRaftID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.ends, id) {
		return member.Contact{Last: time.Now().Add(-time.Millisecond), Failing: true}
	}
	if since, cut := s.cut[name]; cut {
		return member.Contact{Last: since, Failing: true, Current: true}
	}
	return member.Contact{Last: time.Now(), Current: !s.behind[name]}
}

func (s stageRaft) ContactChanged() <-chan struct{} { return s.contacted }

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
	return s.change(prev, "promote", id, func(at int) {
		if at < 0 {
			s.config = append(s.config, member.Server{ID: id, Voter: true})
			return
		}
		s.config[at].Voter = true
	})
}

func (s stageRaft) Remove(id string, prev uint64) error {
	return s.change(prev, "remove", id, func(at int) { s.config = slices.Delete(s.config, at, at+1) })
}

func (s stageRaft) TransferTo(context.Context, string) error {
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

func (s stageTerm) AnnounceVoters(set wire.VoterSet) {
	s.set(func() { s.told = append(s.told, set) })
}

// Described answers as if every living process were attached, unless the test says
// otherwise.
func (s stageTerm) Described(name string, boot uint64) (meta member.Metadata, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own, said := s.said[member.Process{Name: name, Boot: boot}]; said {
		return own, own != (member.Metadata{})
	}
	for _, m := range s.sightings {
		if m.Name == name && m.Boot == boot && m.Alive && !s.deaf[name] {
			return m.Meta, true
		}
	}
	return meta, false
}

func (s stageTerm) Attachments() <-chan struct{} { return s.attached }

func (s stageTerm) Bound() (ttl uint64)      { s.set(func() { ttl = s.bound }); return }
func (s stageTerm) Lifted() (ok bool)        { s.set(func() { ok = s.lifted }); return }
func (s stageTerm) Format() (f int)          { s.set(func() { f = s.format }); return }
func (s stageTerm) ConfigIndex() (at uint64) { s.set(func() { at = s.index }); return }

// stagePeers answers for the other members.
type stagePeers struct{ *stage }

var errDeclined = errors.New("declined")

func (s stagePeers) AskInto(ctx context.Context, to member.Process, t wire.Type, _ []byte, v any) error {
	s.mu.Lock()
	deaf, declines := s.deaf[to.Name], s.declines[to.Name]
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
	}
	return nil
}

func (s stagePeers) Begin(_ context.Context, to member.Process, t wire.Type, body []byte, done func(wire.Frame, error)) {
	if t == wire.Progress {
		s.mu.Lock()
		a := wire.ProgressAnswer{Raft: member.RaftID(to.Name, 1), Leaves: !s.stays[to.Name]}
		deaf := s.deaf[to.Name]
		s.mu.Unlock()
		if deaf {
			done(wire.Frame{}, errDeclined)
		} else {
			done(wire.Frame{Code: wire.CodeOK, Body: wire.Marshal(&a)}, nil)
		}
		return
	}
	var notice wire.RemovedNotice
	if t == wire.Removed && wire.Unmarshal(body, &notice) == nil {
		s.set(func() { s.log = append(s.log, "tell "+to.Name+" of "+notice.Raft) })
	}
	done(wire.Frame{}, nil)
}
