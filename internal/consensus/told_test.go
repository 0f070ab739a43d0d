package consensus

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// TestAServerIsNotAskedTwice: a message without entries that the server has acknowledged is
// answered in its place, but not for long, not without a living server, and no other.
func TestAServerIsNotAskedTwice(t *testing.T) {
	message := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6}
	heartbeat := raft.AppendEntriesRequest{Term: 3}
	yes := raft.AppendEntriesResponse{Term: 3, LastLog: 9, Success: true}
	with := func(f func(*raft.AppendEntriesRequest)) raft.AppendEntriesRequest {
		m := message
		f(&m)
		return m
	}
	for name, tc := range map[string]struct {
		then func(*told)
		ask  raft.AppendEntriesRequest
		id   raft.ServerID
		want bool
	}{
		"the same":         {nil, message, "a", true},
		"a heartbeat":      {nil, heartbeat, "a", false},
		"another server":   {nil, message, "b", false},
		"another term":     {nil, with(func(m *raft.AppendEntriesRequest) { m.Term++ }), "a", false},
		"another entry":    {nil, with(func(m *raft.AppendEntriesRequest) { m.PrevLogEntry++ }), "a", false},
		"another log":      {nil, with(func(m *raft.AppendEntriesRequest) { m.PrevLogTerm++ }), "a", false},
		"a later commit":   {nil, with(func(m *raft.AppendEntriesRequest) { m.LeaderCommitIndex++ }), "a", false},
		"with entries":     {nil, with(func(m *raft.AppendEntriesRequest) { m.Entries = []*raft.Log{{}} }), "a", false},
		"no sign of life":  {func(*told) { time.Sleep(timing.ToldContact) }, message, "a", false},
		"a failure since":  {func(x *told) { x.note("a", &heartbeat, &yes, time.Now(), errors.New("gone")) }, message, "a", false},
		"a refusal since":  {func(x *told) { x.note("a", &message, &raft.AppendEntriesResponse{Term: 3}, time.Now(), nil) }, message, "a", false},
		"a later term":     {func(x *told) { x.note("a", &heartbeat, &raft.AppendEntriesResponse{Term: 4}, time.Now(), nil) }, message, "a", false},
		"entries since":    {func(x *told) { m := message; m.Entries = []*raft.Log{{}}; x.note("a", &m, &yes, time.Now(), nil) }, message, "a", false},
		"heartbeats since": {func(x *told) { beats(x, &heartbeat, timing.Told/2) }, message, "a", true},
		"too long ago":     {func(x *told) { beats(x, &heartbeat, timing.Told) }, message, "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTold(nil)
				x.note("a", &message, &yes, time.Now(), nil)
				if tc.then != nil {
					tc.then(x)
				}
				var resp raft.AppendEntriesResponse
				if _, got := x.answers(tc.id, &tc.ask, &resp); got != tc.want || got && (resp.Term != 3 || resp.LastLog != 9 || !resp.Success) {
					t.Errorf("%t, %+v", got, resp)
				}
			})
		})
	}
}

// beats has the server answer heartbeats for so long.
func beats(x *told, heartbeat *raft.AppendEntriesRequest, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(timing.ToldContact / 2)
		x.note("a", heartbeat, &raft.AppendEntriesResponse{Term: 3, Success: true}, time.Now(), nil)
	}
}

// TestAnAnswerWaitsForNews: the answer to a message that says nothing new is due when there
// is something to say, and not before.
func TestAnAnswerWaitsForNews(t *testing.T) {
	message := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 7}
	heartbeat := raft.AppendEntriesRequest{Term: 3}
	yes := raft.AppendEntriesResponse{Term: 3, LastLog: 7, Success: true}
	const never = time.Hour
	type stage struct {
		*told
		newest atomic.Uint64
		serves atomic.Bool
		done   chan struct{}
	}
	for name, tc := range map[string]struct {
		commit uint64
		change func(*stage) // after 100 ms; nil: before the call
		before func(*stage)
		takes  time.Duration
		want   bool
	}{
		"nothing":                   {takes: timing.Told},
		"heartbeats":                {change: func(s *stage) { s.note("a", &heartbeat, &yes, time.Now(), nil) }, takes: timing.Told},
		"another server's failure":  {change: func(s *stage) { s.note("b", &heartbeat, &yes, time.Now(), errors.New("gone")) }, takes: timing.Told},
		"a failure":                 {change: func(s *stage) { s.note("a", &heartbeat, &yes, time.Now(), errors.New("gone")) }, takes: 100 * time.Millisecond},
		"an entry":                  {change: func(s *stage) { s.newest.Add(1); s.news.Wake() }, takes: 100 * time.Millisecond, want: true},
		"an entry before":           {before: func(s *stage) { s.newest.Add(1); s.news.Wake() }, want: true},
		"an entry not committed":    {commit: 6, want: true},
		"an entry of the others":    {commit: 8, before: func(s *stage) { s.newest.Add(1) }, want: true},
		"the end of the term":       {change: func(s *stage) { s.serves.Store(false); s.news.Wake() }, takes: 100 * time.Millisecond, want: true},
		"another state":             {change: func(s *stage) { s.news.Wake() }, takes: timing.Told},
		"the end of the term began": {before: func(s *stage) { s.serves.Store(false) }, want: true},
		"the end":                   {change: func(s *stage) { close(s.done) }, takes: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{told: newTold(nil), done: make(chan struct{})}
				s.newest.Store(7)
				s.serves.Store(true)
				m := message
				if tc.commit != 0 {
					m.LeaderCommitIndex = tc.commit
				}
				began := time.Now()
				s.note("a", &m, &yes, began, nil)
				if tc.before != nil {
					tc.before(s)
				}
				if tc.change != nil {
					time.AfterFunc(100*time.Millisecond, func() { tc.change(s) })
				}
				var resp raft.AppendEntriesResponse
				got := s.settle("a", &m, &resp, func() (uint64, error) { return s.newest.Load(), nil },
					func(string, uint64) bool { return s.serves.Load() }, s.done)
				if took := time.Since(began); got != tc.want || took != tc.takes || got && !resp.Success {
					t.Errorf("%t after %v, %+v; want %t after %v", got, took, resp, tc.want, tc.takes)
				}
				time.Sleep(never)
			})
		})
	}
}

// TestEntriesAfterARest: an answer that waits holds no entry up.
func TestEntriesAfterARest(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("ttl 10s")
		leader := b.leader().raft()
		for i := range 200 {
			time.Sleep(rand.N(3 * timing.Told))
			began := time.Now()
			if _, code := leader.Commit([]byte("a")); code != wire.CodeOK {
				t.Fatalf("entry %d: code %v", i, code)
			}
			if took := time.Since(began); took > time.Millisecond {
				t.Errorf("entry %d was committed after %v", i, took)
			}
		}
	})
}

// TestAnIdleLeaderSends: heartbeats, and each message once in a while. The rest is quiet, and
// all of it leaves at moments of the grid, to all servers at once.
func TestAnIdleLeaderSends(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found(func(c *Config) {
			c.Self.Grid = new(timing.Grid)
			c.Self.Grid.Begin()
		})
		b.commit("ttl 10s")
		leader := b.leader()
		time.Sleep(10 * time.Second)
		const seconds int64 = 60
		grid := leader.raft().cfg.Self.Grid
		time.Sleep(grid.Next(time.Now(), timing.Attend) + timing.Attend/2) // from here on never at a moment of the grid
		before, moments := b.sent(leader.name), 0
		for range seconds * int64(time.Second/timing.Attend) {
			began := time.Now()
			time.Sleep(timing.Attend)
			if b.sentAt(leader.name).After(began) {
				moments++
				if past := grid.Next(began, timing.Attend); !b.sentAt(leader.name).Equal(began.Add(past)) {
					t.Errorf("a message beside the grid, %v after a moment", b.sentAt(leader.name).Sub(began.Add(past)))
				}
			}
		}
		// Two servers, each with a heartbeat every 200 ms, and a message a second.
		if got, want := b.sent(leader.name)-before, 2*seconds*(5+1); got < 2*seconds*5 || got > want {
			t.Errorf("%d messages in %d s, want %d", got, seconds, want)
		}
		if want := int(seconds) * 6; moments > want {
			t.Errorf("messages at %d moments in %d s, want %d at most", moments, seconds, want)
		}
	})
}

// sentAt returns when a member has sent its latest message as a leader or a candidate.
func (b *bench) sentAt(name string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last int64
	for _, p := range b.dialled {
		if p.from == name {
			last = max(last, p.last.Load())
		}
	}
	return time.Unix(0, last)
}

// sent returns the number of messages so far that a member has sent as a leader or a
// candidate.
func (b *bench) sent(name string) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.dialled {
		if p.from == name {
			n += p.writes.Load()
		}
	}
	return n
}

// TestACutOffLeaderStepsDown: one election timeout after its last word from a majority, and so
// before the others elect the next leader. At the shortest timeouts a leader that writes steps
// down later, by ToldContact at most.
func TestACutOffLeaderStepsDown(t *testing.T) {
	for _, c := range []struct {
		ttl         string
		writes      bool
		least, most time.Duration // from the silence to the end of the leadership
		last        bool          // the next leader may be elected before
	}{
		{"10s", false, 725 * time.Millisecond, 950 * time.Millisecond, false},
		{"10s", true, 725 * time.Millisecond, 950 * time.Millisecond, false},
		{"7s", false, 550 * time.Millisecond, 650 * time.Millisecond, false},
		{"6s", false, 400 * time.Millisecond, 550 * time.Millisecond, false},
		{"5s", false, 400 * time.Millisecond, timing.LeaderLease, true},
		{"5s", true, 400 * time.Millisecond, timing.LeaderLease + timing.ToldContact, true},
	} {
		onBench(t, func(b *bench) {
			b.found()
			b.commit("ttl " + c.ttl)
			for range 20 {
				leader := b.leader()
				time.Sleep(2*timing.Told + rand.N(timing.Told))
				began := time.Now()
				b.lose(b.lostSends, leader.name, true)
				if c.writes {
					time.Sleep(rand.N(timing.ToldContact))
					b.wg.Go(func() { leader.raft().Commit([]byte("a")) })
				}
				for leader.raft().raft.State() == raft.Leader && time.Since(began) < time.Minute {
					time.Sleep(time.Millisecond)
				}
				const late = 11 * time.Millisecond // of raft's look at its lease, and of this loop
				if took := time.Since(began); took < c.least || took > c.most+late {
					t.Errorf("%+v: a leader that is cut off steps down after %v", c, took)
				}
				for name, other := range b.all {
					if other != leader && other.raft().raft.State() == raft.Leader && !c.last {
						t.Errorf("%+v: %s leads before", c, name)
					}
				}
				b.lose(b.lostSends, leader.name, false)
				time.Sleep(10 * time.Second)
			}
		})
	}
}

// TestALateFailureIsOfItsTerm: the failure of a heartbeat of a former term says nothing of the
// server in the present term; one of the present term counts.
func TestALateFailureIsOfItsTerm(t *testing.T) {
	for failed, fails := range map[uint64]bool{3: false, 4: true} {
		x := &transport{told: newTold(nil), contacts: newContacts(), reach: newReach()}
		x.reach.serves = func(_ string, term uint64) bool { return term == 4 }
		h := newHeartbeats(x)
		began := time.Now()
		h.note("a", &raft.AppendEntriesRequest{Term: 4}, &raft.AppendEntriesResponse{Term: 4, Success: true}, began, nil)
		h.noteLate("a", &raft.AppendEntriesRequest{Term: failed}, &lateHeartbeat{term: failed, err: errors.New("gone")}, began)
		if x.reach.down["a"] != fails || x.told.contact("a", 4).IsZero() != fails {
			t.Errorf("after a failure of term %d: down %t, contact %v", failed, x.reach.down["a"], x.told.contact("a", 4))
		}
		h.noteLate("a", &raft.AppendEntriesRequest{Term: 3}, &lateHeartbeat{term: 3, resp: raft.AppendEntriesResponse{Term: 3, Success: true}}, began)
		if x.reach.down["a"] {
			t.Error("an answer is no sign of life")
		}
	}
}
