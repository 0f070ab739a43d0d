package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
)

// slowDisk is a store whose writes of entries take a while.
type slowDisk struct {
	raftstore.Engine
	takes time.Duration
}

func (d *slowDisk) StoreLogs(logs []*raft.Log) error {
	time.Sleep(d.takes)
	return d.Engine.StoreLogs(logs)
}

// commitLog records the commits that the members tell.
type commitLog struct {
	mu      sync.Mutex
	commits map[string][]Commit // by member
}

func (l *commitLog) of(name string) []Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.commits[name])
}

func (l *commitLog) add(name string) func(context.Context, Commit) {
	return func(_ context.Context, c Commit) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.commits[name] = append(l.commits[name], c)
	}
}

func TestTheLeaderTellsEachCommit(t *testing.T) {
	const takes = 3 * time.Millisecond
	inBubble(t, func(b *bubble) {
		log := &commitLog{commits: make(map[string][]Commit)}
		b.form(func(c *Config) {
			c.Commits = log.add(c.Name)
			c.engine = &slowDisk{raftstore.NewMemoryEngine(), takes}
		})
		leader := b.leader()
		follower := b.followers()[0]
		time.Sleep(time.Second)
		synctest.Wait()
		before := len(log.of(leader.Name()))
		for id := range 10 {
			began := time.Now()
			b.open(follower, byte(id+1))
			longest := time.Since(began)
			synctest.Wait()
			all := log.of(leader.Name())
			if len(all) != before+id+1 {
				t.Fatalf("%d commits told after %d more commands", len(all)-before, id+1)
			}
			c := all[len(all)-1]
			last := all[len(all)-2]
			if c.Index <= last.Index || c.Commands != 1 || c.Bytes == 0 {
				t.Errorf("told %+v after %+v", c, last)
			}
			if _, leads := leader.seat.Current().Leadership(); c.Term == 0 || !leads {
				t.Errorf("told %+v", c)
			}
			if c.Append != takes || c.Took < takes || c.Took > longest {
				t.Errorf("a store that takes %v, a command that took %v: told %+v", takes, longest, c)
			}
		}
		for _, n := range b.followers() {
			if told := log.of(n.Name()); len(told) > 0 && told[len(told)-1].Term >= log.of(leader.Name())[0].Term {
				t.Errorf("%s does not lead, and told %+v", n.Name(), told)
			}
		}
		// The next leader tells of its own, in its own term.
		term := log.of(leader.Name())[0].Term
		b.crash(leader.Name())
		next := b.leader()
		b.open(next, 99)
		synctest.Wait()
		if told := log.of(next.Name()); len(told) == 0 || told[0].Term <= term {
			t.Errorf("after term %d the next leader told %+v", term, told)
		}
	})
}

func TestEventsHaveTheValuesOfStartsContext(t *testing.T) {
	type key struct{}
	inBubble(t, func(b *bubble) {
		cfg := b.config("n1")
		alone(&cfg)
		var mu sync.Mutex
		var contexts []context.Context
		cfg.Events = func(ctx context.Context, e Event) {
			mu.Lock()
			defer mu.Unlock()
			contexts = append(contexts, ctx)
		}
		cfg.Commits = func(ctx context.Context, c Commit) { cfg.Events(ctx, Event{}) }
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "mine"))
		n, err := Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.nodes["n1"], b.started = n, append(b.started, n)
		cancel() // bounds the call alone
		b.ready(n)
		synctest.Wait()
		mu.Lock()
		if len(contexts) < 3 {
			t.Errorf("%d events", len(contexts))
		}
		for _, ctx := range contexts {
			if ctx.Value(key{}) != "mine" || ctx.Err() != nil {
				t.Errorf("a context with %v that ended with %v", ctx.Value(key{}), ctx.Err())
			}
		}
		mu.Unlock()
		delete(b.nodes, "n1")
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		for _, ctx := range contexts {
			if !errors.Is(context.Cause(ctx), ErrStopped) {
				t.Errorf("a context that ended with %v", context.Cause(ctx))
			}
		}
	})
}

func TestHooksAddedToANodeInUse(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var first, added, commits int
		n := b.join("n1", alone, func(c *Config) { c.Events = func(context.Context, Event) { first++ } })
		synctest.Wait()
		before := first
		hooks := Hooks{
			Events:  func(context.Context, Event) { added++ },
			Commits: func(context.Context, Commit) { commits++ },
		}
		remove, removeSecond := n.AddHooks(hooks), n.AddHooks(hooks)
		removeNothing := n.AddHooks(Hooks{})
		n.event(Event{Kind: MemberJoined})
		b.open(n, 1)
		synctest.Wait()
		if added != 2 || commits != 2 || first != before+1 {
			t.Errorf("told of %d events and %d commits, want 2 and 2; the first %d", added, commits, first-before)
		}
		remove()
		remove()
		removeNothing()
		n.event(Event{Kind: MemberJoined})
		b.open(n, 2)
		synctest.Wait()
		if added != 3 || commits != 3 || first != before+2 {
			t.Errorf("told of %d events and %d commits, want 3 and 3; the first %d", added, commits, first-before)
		}
		removeSecond()
		n.event(Event{Kind: MemberJoined})
		b.open(n, 3)
		synctest.Wait()
		if added != 3 || commits != 3 {
			t.Errorf("told of %d events and %d commits after the last was removed", added, commits)
		}
	})
}

// A function that blocks delays no commit and no event of the other function, and may
// call the node.
func TestAHookThatBlocksDelaysNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		gate := make(chan struct{})
		var health []Health
		var n *Node
		n = b.start("n1", alone, func(c *Config) {
			c.Commits = func(context.Context, Commit) { <-gate }
			c.Events = func(ctx context.Context, e Event) {
				if e.Kind == Granting {
					health = append(health, n.Health(ctx))
				}
			}
		})
		b.ready(n)
		for id := range 20 {
			began := time.Now()
			b.open(n, byte(id+1))
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("a command took %v", took)
			}
		}
		synctest.Wait()
		if len(health) != 1 || health[0].Err != nil {
			t.Errorf("health inside an event: %+v", health)
		}
		close(gate)
	})
}
