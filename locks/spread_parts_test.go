package locks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// A planner is a leader's planner whose plans the test makes. The keys of the shards
// are those of a world.
type planner struct {
	mu       sync.Mutex
	version  uint64
	callers  map[string]*planned // by client
	declines []machine.Decline
	obeys    bool          // takes declined shards away, as the table does
	hold     chan struct{} // answers no Decline before it is closed; nil: at once
	group    machine.GroupStatus
}

// planned is a member in a world whose group commands go to a planner.
type planned struct {
	*member
	p      *planner
	sinks  map[machine.SessionID]func(machine.Event)
	enlist machine.Enlist // the latest
	mine   []uint32       // the shards of the latest part
	left   bool
}

// plannedClient returns a client whose calls of Spread are told their parts by p.
func (w *world) plannedClient(t *testing.T, p *planner, name string) *Client {
	t.Helper()
	m := &planned{member: w.join("node-" + name), p: p, sinks: make(map[machine.SessionID]func(machine.Event))}
	c := newClient(m, Options{Name: name})
	c.slept = func(time.Time) time.Duration { return m.Slept() }
	if p.callers == nil {
		p.callers = make(map[string]*planned)
	}
	p.callers[name] = m
	t.Cleanup(func() { shutdown(t, c) })
	return c
}

func (m *planned) Attach(id machine.SessionID, sink func(machine.Event)) {
	m.p.mu.Lock()
	m.sinks[id] = sink
	m.p.mu.Unlock()
	m.member.Attach(id, sink)
}

func (m *planned) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	switch cmd := cmd.(type) {
	case machine.Enlist:
		m.enlist, m.left = cmd, false
	case machine.Delist:
		m.left = true
	case machine.Decline:
		m.p.declines = append(m.p.declines, cmd)
		if hold := m.p.hold; hold != nil {
			m.p.mu.Unlock()
			<-hold
			m.p.mu.Lock()
		}
		if m.p.obeys {
			return m.decline(cmd), nil
		}
	default:
		m.p.mu.Unlock()
		defer m.p.mu.Lock()
		return m.member.Propose(ctx, cmd)
	}
	return machine.Outcome{Code: machine.OK}, nil
}

// decline takes a shard from the part, and tells the new one a millisecond later. The caller
// holds m.p.mu.
func (m *planned) decline(cmd machine.Decline) machine.Outcome {
	if cmd.Version != m.p.version {
		return machine.Outcome{Code: machine.WrongVersion, Limit: m.p.version}
	}
	rest := slices.DeleteFunc(slices.Clone(m.mine), func(shard uint32) bool { return shard == cmd.Shard })
	time.AfterFunc(time.Millisecond, m.p.give(m, machine.Part{Mine: rest}))
	return machine.Outcome{Code: machine.OK}
}

func (m *planned) Read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	if q.Group == "" {
		return m.member.Read(ctx, q)
	}
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	g := m.p.group
	return replica.Answer{Version: 1, Group: &g}, nil
}

// tell makes p the part of a client's caller.
func (p *planner) tell(client string, part machine.Part) {
	p.mu.Lock()
	tell := p.give(p.callers[client], part)
	p.mu.Unlock()
	tell()
	settle()
}

// give makes p the part of m's caller, and returns the function that tells it. The caller holds
// p.mu.
func (p *planner) give(m *planned, part machine.Part) (tell func()) {
	p.version++
	part.Version, part.Shards, m.mine = p.version, 16, part.Mine
	sink := m.sinks[m.enlist.Session]
	e := machine.Event{
		Kind: machine.EventPart, Session: m.enlist.Session, Seq: m.enlist.Seq, Key: m.enlist.Group,
		Value: string(machine.AppendPart(nil, part)),
	}
	return func() { sink(e) }
}

// assign makes the shards the part of a client's caller.
func (p *planner) assign(client string, shards ...uint32) {
	p.tell(client, machine.Part{Mine: shards})
}

func (p *planner) hasLeft(client string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.callers[client].left
}

func (p *planner) enlisted(client string) machine.Enlist {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.callers[client].enlist
}

func (p *planner) declined() (shards []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.declines {
		shards = append(shards, int(d.Shard))
	}
	return shards
}

// owns checks which shards a client's works run for.
func (s *shardMap) owns(t *testing.T, name string, want ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var shards []int
	for shard, owner := range s.owner {
		if owner == name {
			shards = append(shards, shard)
		}
	}
	if slices.Sort(shards); !slices.Equal(shards, want) {
		t.Errorf("%s owns %v, want %v", name, shards, want)
	}
}

// spreads runs Spread on c for 16 shards until the test's end, or until the call is
// ended by the result.
func spreads(t *testing.T, c *Client, work ShardWork, opts ...SpreadOption) (leave func(), ended *call[struct{}]) {
	t.Helper()
	ctx, cancel := context.WithCancel(bg)
	t.Cleanup(cancel)
	ended = does(func(ctx context.Context) error { return c.Spread(ctx, "g", 16, work, opts...) }, ctx)
	settle()
	return cancel, ended
}

// A shard that is assigned to another caller is served until that caller waits for it,
// and the next owner is granted the shard in the same step.
func TestAnOwnerServesUntilTheNextOneWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		spreads(t, a, s.work("a"))
		spreads(t, b, s.work("b"))
		p.assign("a", 0, 1, 2)
		s.owns(t, "a", 0, 1, 2)
		p.assign("a", 0, 1)
		time.Sleep(time.Hour)
		s.owns(t, "a", 0, 1, 2)
		p.assign("b", 2)
		s.owns(t, "a", 0, 1)
		s.owns(t, "b", 2)
		p.assign("b", 1, 2) // before a is told
		s.owns(t, "b", 2)
		p.assign("a", 0)
		s.owns(t, "a", 0)
		s.owns(t, "b", 1, 2)
	})
}

// An assignment that is taken back before the next owner waits moves nothing. One that
// waited for a moment long ago is not the next owner.
func TestAHandOverWithoutANextOwnerIsCalledOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		spreads(t, a, s.work("a"))
		spreads(t, b, s.work("b"))
		p.assign("a", 0)
		p.assign("a")
		p.assign("a", 0)
		p.assign("b", 0) // a's work is contended from now on
		p.assign("b")
		s.owns(t, "a", 0)
		p.assign("a")
		time.Sleep(time.Minute)
		s.owns(t, "a", 0)
		p.assign("b", 0)
		s.owns(t, "a")
		s.owns(t, "b", 0)
		s.count(t, "a hand-over", 2)
	})
}

// A wait for a shard that goes to another caller is withdrawn.
func TestAWaitForAShardIsWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		j := newJournal(t)
		b.AddTrace(&Trace{AcquireFailed: j.event("failed")})
		spreads(t, a, s.work("a"))
		spreads(t, b, s.work("b"))
		p.assign("a", 0)
		p.assign("b", 0)
		if n := w.Status("g/0").Queue; n != 1 {
			t.Errorf("%d wait", n)
		}
		p.assign("b")
		if n := w.Status("g/0").Queue; n != 0 {
			t.Errorf("%d wait", n)
		}
		if j.want("failed g/0 Spread"); !errors.Is(j.last("failed").Err, ErrHandedOver) {
			t.Errorf("told %+v", j.last("failed"))
		}
		s.owns(t, "a", 0)
	})
}

// Asked is closed first, and the context ends as late as Drain says, or when the work
// has returned.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		const drain = 10 * time.Second
		var asked, ended time.Time
		var mu sync.Mutex
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
			s.begin("a", shard, l)
			defer s.end(shard)
			<-l.Asked()
			mu.Lock()
			asked = time.Now()
			mu.Unlock()
			if shard == 1 {
				return nil // early
			}
			<-ctx.Done()
			mu.Lock()
			ended = time.Now()
			mu.Unlock()
			if cause := context.Cause(ctx); cause != ErrHandedOver {
				t.Errorf("cause %v", cause)
			}
			return nil
		}, Drain(drain))
		spreads(t, b, s.work("b"))
		p.assign("a", 0, 1)
		if got := p.enlisted("a").Drain; got != uint64(drain/time.Millisecond) {
			t.Errorf("enlisted with a drain of %d ms", got)
		}
		p.tell("a", machine.Part{Drain: uint64(drain / time.Millisecond)})
		before := time.Now()
		p.tell("b", machine.Part{Mine: []uint32{0, 1}})
		s.owns(t, "a", 0)
		s.owns(t, "b", 1)
		time.Sleep(drain + time.Second)
		s.owns(t, "a")
		s.owns(t, "b", 0, 1)
		mu.Lock()
		defer mu.Unlock()
		if d := asked.Sub(before); d < 0 || d > 10*time.Millisecond {
			t.Errorf("asked after %v", d)
		}
		if d := ended.Sub(before) - drain; d < 0 || d > 10*time.Millisecond {
			t.Errorf("ended %v after the drain", d)
		}
		if declined := p.declined(); len(declined) != 0 {
			t.Errorf("declined %v", declined)
		}
	})
}

// A work that returns nil gives its shard up, and does not run again before the
// planner has assigned the shard again, or a TTL is about over.
func TestAWorkThatReturnsNilGivesItsShardUp(t *testing.T) {
	for _, end := range []func(){func() {}, runtime.Goexit} {
		bubble(t, func(t *testing.T, w *world) {
			p := &planner{}
			var mu sync.Mutex
			runs := make(map[int]int)
			ran := func(want ...int) {
				t.Helper()
				mu.Lock()
				defer mu.Unlock()
				if got := []int{runs[0], runs[1]}; !slices.Equal(got, want) {
					t.Errorf("runs %v, want %v", got, want)
				}
			}
			a := w.plannedClient(t, p, "a")
			spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
				mu.Lock()
				runs[shard]++
				mu.Unlock()
				if shard == 1 {
					end()
					return nil
				}
				<-ctx.Done()
				return nil
			})
			p.assign("a", 0, 1)
			ran(1, 1)
			time.Sleep(testTTL / 3)
			ran(1, 1)
			time.Sleep(testTTL * 2 / 3)
			ran(1, 2) // nobody has answered the Decline by another plan
			if runtimeEnded := p.declined(); len(runtimeEnded) > 2 {
				t.Errorf("declined %v", runtimeEnded)
			}
			p.assign("a", 0)
			p.assign("a", 0, 1)
			ran(1, 3) // the planner has assigned the shard again
		})
	}
}

// All shards that Prepare refuses together are given up, by about one command each.
func TestShardsDeclinedTogetherAreDeclinedInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{obeys: true}
		a := w.plannedClient(t, p, "a")
		down := errors.New("the database is down")
		work := func(context.Context, int, *Lock) error { return nil }
		spreads(t, a, work, Prepare(func(context.Context, int) error { return down }))
		all := make([]uint32, 16)
		for i := range all {
			all[i] = uint32(i)
		}
		p.assign("a", all...)
		time.Sleep(time.Second)
		settle()
		p.mu.Lock()
		defer p.mu.Unlock()
		if left := p.callers["a"].mine; len(left) > 0 {
			t.Errorf("%v are not declined", left)
		}
		if n := len(p.declines); n > 2*len(all) {
			t.Errorf("%d commands to decline %d shards", n, len(all))
		}
	})
}

// A shard that left while it waited to be declined, and came back, runs, and is not declined.
func TestAShardThatCameBackIsNotDeclined(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{hold: make(chan struct{})}
		a := w.plannedClient(t, p, "a")
		var runs atomic.Int64
		spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
			if shard == 1 && runs.Add(1) > 1 {
				<-ctx.Done()
			}
			if shard == 1 {
				time.Sleep(time.Millisecond) // shard 0 is declined first
			}
			return nil
		})
		p.assign("a", 0, 1)
		time.Sleep(time.Second)
		p.assign("a", 0)
		p.assign("a", 0, 1)
		time.Sleep(time.Second)
		if n := runs.Load(); n != 2 {
			t.Errorf("the work ran %d times", n)
		}
		close(p.hold)
		settle()
		if got := p.declined(); !slices.Equal(got, []int{0}) {
			t.Errorf("declined %v", got)
		}
	})
}

// After an error the work runs again, after pauses that double up to a TTL; after a
// Final, Spread ends.
func TestErrorsOfAShardWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		a := w.plannedClient(t, p, "a")
		var mu sync.Mutex
		var starts []time.Duration
		began := time.Now()
		_, ended := spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
			if shard == 0 {
				return s.work("a")(ctx, shard, l)
			}
			mu.Lock()
			defer mu.Unlock()
			if starts = append(starts, time.Since(began).Round(100*time.Millisecond)); len(starts) == 10 {
				return fmt.Errorf("enough: %w", Final(errWork))
			}
			return errors.New("not yet")
		})
		p.assign("a", 0, 1)
		time.Sleep(time.Second)
		s.owns(t, "a", 0)
		time.Sleep(2 * time.Minute)
		if _, err := ended.ends(t); err != errWork {
			t.Errorf("spread: %v", err)
		}
		s.owns(t, "a")
		var pauses []time.Duration
		for i := range starts[1:] {
			pauses = append(pauses, starts[i+1]-starts[i])
		}
		ms := time.Millisecond
		want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, testTTL, testTTL}
		if !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		if !p.hasLeft("a") {
			t.Error("the caller has not left the group")
		}
	})
}

// The error of a work that ends with the caller's context is not lost.
func TestAnErrorAfterTheEndIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		leave, ended := spreads(t, w.plannedClient(t, p, "a"), func(ctx context.Context, shard int, l *Lock) error {
			<-ctx.Done()
			return errWork
		})
		p.assign("a", 0, 1)
		leave()
		if _, err := ended.ends(t); !errors.Is(err, errWork) || !errors.Is(err, context.Canceled) {
			t.Errorf("spread: %v", err)
		}
	})
}

// A Prepare that fails, or hangs, gives up the shard, and holds nothing meanwhile.
func TestPrepare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{}
		s := newShardMap(t)
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		spreads(t, a, s.work("a"))
		prepared := make(chan error)
		hang := make(chan struct{})
		leave, ended := spreads(t, b, s.work("b"), Prepare(func(ctx context.Context, shard int) error {
			switch shard {
			case 1:
				return errWork
			case 2:
				<-hang
				return nil
			case 3:
				runtime.Goexit()
			}
			select {
			case err := <-prepared:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		p.assign("a", 0, 1, 2, 3)
		p.assign("a")
		p.assign("b", 0, 1, 2, 3)
		time.Sleep(testTTL / 4)
		s.owns(t, "a", 0, 1, 2, 3)
		if d := p.declined(); !slices.Equal(d, []int{1, 3}) && !slices.Equal(d, []int{3, 1}) {
			t.Errorf("declined %v", d)
		}
		p.assign("b", 0, 2)
		prepared <- nil
		settle()
		s.owns(t, "b", 0)
		s.owns(t, "a", 1, 2, 3)
		time.Sleep(testTTL)
		if d := p.declined(); len(d) != 3 || d[2] != 2 {
			t.Errorf("declined %v", d)
		}
		p.assign("b", 0)
		p.assign("b", 0, 2) // again, while the function hangs still
		leave()
		settle()
		s.owns(t, "b")
		ended.pends(t)
		close(hang)
		if _, err := ended.ends(t); !errors.Is(err, context.Canceled) {
			t.Errorf("spread: %v", err)
		}
	})
}

// A resize ends all works, contended or not, and Spread, once its last work has
// returned.
func TestAResizeEndsACaller(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := &planner{group: machine.GroupStatus{Shards: 16, Next: 32}}
		s := newShardMap(t)
		a, b := w.plannedClient(t, p, "a"), w.plannedClient(t, p, "b")
		_, ended := spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
			err := s.work("a")(ctx, shard, l)
			time.Sleep(time.Duration(shard) * time.Second)
			return err
		})
		_, waits := spreads(t, b, s.work("b"))
		p.assign("a", 0, 1, 2)
		p.assign("b", 1)
		p.assign("a", 1, 2)
		p.tell("b", machine.Part{Resized: true})
		want := ShardsError{Name: "g", Shards: 16, Have: 32}
		var wrong *ShardsError
		if _, err := waits.ends(t); !errors.As(err, &wrong) || *wrong != want || !errors.Is(err, ErrShards) {
			t.Errorf("spread: %v", err)
		}
		s.owns(t, "a", 0, 1, 2)
		p.tell("a", machine.Part{Resized: true})
		s.owns(t, "a")
		time.Sleep(time.Second)
		ended.pends(t)
		if p.hasLeft("a") {
			t.Error("a has left the group, and a work runs")
		}
		if _, err := ended.ends(t); !errors.As(err, &wrong) || *wrong != want {
			t.Errorf("spread: %v", err)
		}
		if n := w.busy(); n != 0 {
			t.Errorf("%d keys are taken", n)
		}
		if !p.hasLeft("a") {
			t.Error("a has not left the group")
		}
	})
}

// When its context ends, Spread leaves the group at once, and returns when its last
// work has returned, whether the cluster can be reached or not.
func TestSpreadReturnsWithItsLastWork(t *testing.T) {
	for _, cut := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			p := &planner{}
			a := w.plannedClient(t, p, "a")
			leave, ended := spreads(t, a, func(ctx context.Context, shard int, l *Lock) error {
				<-ctx.Done()
				time.Sleep(time.Duration(shard) * 100 * time.Millisecond)
				return nil
			})
			p.assign("a", 0, 1, 2, 3)
			if cut {
				p.callers["a"].Isolate()
			}
			leave()
			synctest.Wait()
			if !p.hasLeft("a") {
				t.Error("the caller has not left")
			}
			began := time.Now()
			if _, err := ended.ends(t); !errors.Is(err, context.Canceled) {
				t.Errorf("spread: %v", err)
			}
			if took := time.Since(began); took < 300*time.Millisecond || took > 310*time.Millisecond {
				t.Errorf("Spread returned after %v (cut off: %v)", took, cut)
			}
		})
	}
}

// The last shard of a caller that leaves with many is free a few round trips after it
// left.
func TestACallerLeavesWithManyShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards, latency = 600, 20 * time.Millisecond
		s := newShardMap(t)
		c, m := w.client(t, "a")
		a := spreadOn(t, c, m, "g", shards, s.work("a"))
		time.Sleep(time.Second)
		s.ownsN(t, "a", shards)
		m.SetFaults(termtest.Faults{Latency: latency}) // up to that, each way
		w.spread(t, "b", "g", shards, s.work("b"), Weight(0))
		time.Sleep(time.Second)
		a.leave()
		_, _ = a.ended.ends(t)
		left := time.Now()
		for w.Counts().Grants > 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(left); took > 10*latency {
			t.Errorf("the last shard was free after %v", took)
		}
	})
}

// A grant that comes when the caller has left its group begins no work: the group may have
// another number of shards by then. See internal/model, "a caller leaves with waits that go on".
func TestNoWorkBeginsAfterTheCallerHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		release(t, acquire(t, c, "opens the session"))
		ran := false
		call := &spreadCall{c: c, name: "jobs", shards: 1, work: func(context.Context, int, *Lock) error {
			ran = true
			return nil
		}}
		sp := newSpread(call, c.currentSession())
		sp.left = true
		r := newShardRun(bg, sp, 0).turn()
		settle()
		if ran || r.err != nil || r.workErr != nil {
			t.Errorf("the work began: %t; %+v", ran, r)
		}
		if st := w.Status("jobs/0"); st.Held > 0 {
			t.Error("the key stays taken")
		}
	})
}
