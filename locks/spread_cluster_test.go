package locks_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// An ownership remembers each shard's owners, and checks that no two works of a shard
// run at a time.
type ownership struct {
	t      *testing.T
	mu     sync.Mutex
	owner  map[int]int // by shard: the member
	since  map[int]time.Time
	starts int
	moved  chan struct{} // size 1: a work has begun
}

func newOwnership(t *testing.T) *ownership {
	return &ownership{t: t, owner: make(map[int]int), since: make(map[int]time.Time), moved: make(chan struct{}, 1)}
}

// await waits, for a minute at most, until as many works run at so many members.
func (o *ownership) await(works, members int) {
	o.t.Helper()
	limit := time.After(time.Minute)
	for {
		if sizes := o.sizes(); len(sizes) == members && sum(sizes) == works {
			return
		}
		select {
		case <-o.moved:
		case <-limit:
			o.t.Fatalf("%v after a minute", o.sizes())
		}
	}
}

func (o *ownership) work(member int) locks.ShardWork {
	return func(ctx context.Context, shard int, l *locks.Lock) error {
		o.mu.Lock()
		if by, owned := o.owner[shard]; owned {
			o.t.Errorf("shard %d is member %d's and member %d's", shard, by, member)
		}
		o.owner[shard], o.since[shard] = member, time.Now()
		o.starts++
		o.mu.Unlock()
		select {
		case o.moved <- struct{}{}:
		default:
		}
		<-ctx.Done()
		o.mu.Lock()
		delete(o.owner, shard)
		o.mu.Unlock()
		return nil
	}
}

// sizes returns the number of shards of each member.
func (o *ownership) sizes() map[int]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	sizes := make(map[int]int)
	for _, member := range o.owner {
		sizes[member]++
	}
	return sizes
}

// The leader of a whole cluster is killed, which owns shards too: its shards have
// owners after an election and a TTL, and the others keep theirs.
func TestTheLeadersCrashMovesItsShardsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, shards, ttl = 4, 24, 2 * time.Second
		c := lockstest.New(t, members, lockstest.TTL(ttl))
		c.Settle()
		o := newOwnership(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for i := range members {
			client := c.Client(i)
			running.Go(func() { _ = client.Spread(ctx, "g", shards, o.work(i)) })
		}
		time.Sleep(5 * time.Second)
		if got := o.sizes(); len(got) != members || o.starts != shards {
			t.Fatalf("%v after %d starts", got, o.starts)
		}
		m, err := c.Client((c.Leader()+1)%members).Shards(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		for shard := range shards {
			owner, ok := m.Owner(shard)
			if !ok || owner.Addr == "" || !slices.ContainsFunc(c.Node(0).Members(), func(m cluster.Member) bool {
				return m.Name == owner.Node && m.Addr == owner.Addr
			}) {
				t.Fatalf("shard %d: %+v", shard, owner)
			}
		}
		o.mu.Lock()
		o.starts = 0
		o.mu.Unlock()
		leader := c.Leader()
		killed := time.Now()
		c.Kill(leader)
		for o.sizes()[leader] > 0 || len(o.sizes()) != members-1 || sum(o.sizes()) != shards {
			time.Sleep(10 * time.Millisecond)
			if time.Since(killed) > time.Minute {
				t.Fatalf("%v a minute after the crash", o.sizes())
			}
		}
		if gap := time.Since(killed); gap > 2*ttl+2*time.Second {
			t.Errorf("all shards had owners after %v", gap)
		}
		if o.starts != shards/members {
			t.Errorf("%d works began, want %d", o.starts, shards/members)
		}
	})
}

func sum(sizes map[int]int) (n int) {
	for _, size := range sizes {
		n += size
	}
	return n
}

// A caller that is cut off returns when its context has ended and its work has
// returned.
func TestSpreadReturnsBehindAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3, lockstest.TTL(10*time.Second))
		o := newOwnership(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		returned := make(chan time.Time, 1)
		cut := (c.Leader() + 1) % 3
		client := c.Client(cut)
		go func() {
			_ = client.Spread(ctx, "g", 8, func(ctx context.Context, shard int, l *locks.Lock) error {
				err := o.work(cut)(ctx, shard, l)
				time.Sleep(300 * time.Millisecond)
				return err
			})
			returned <- time.Now()
		}()
		time.Sleep(5 * time.Second)
		if got := o.sizes(); got[cut] != 8 {
			t.Fatalf("%v", got)
		}
		c.Isolate(cut)
		time.Sleep(time.Second)
		ended := time.Now()
		cancel()
		if took := (<-returned).Sub(ended); took < 300*time.Millisecond || took > 310*time.Millisecond {
			t.Errorf("Spread returned after %v", took)
		}
	})
}

// Every member's map knows of a move soon.
func TestMapsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := testrounds.Rounds(6, 50)
		const shards = 32
		c := lockstest.New(t, members)
		o := newOwnership(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		var mu sync.Mutex
		var late []time.Duration
		for i := range members {
			m, err := c.Client(i).Shards(ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				known := make(map[int]string)
				for m.Err() == nil {
					changed := m.Changed()
					for shard := range shards {
						owner, ok := m.Owner(shard)
						token := fmt.Sprint(owner.Token)
						if !ok || known[shard] == token {
							continue
						}
						known[shard] = token
						o.mu.Lock()
						since := o.since[shard]
						o.mu.Unlock()
						mu.Lock()
						late = append(late, time.Since(since))
						mu.Unlock()
					}
					<-changed
				}
			})
		}
		leave := func() {}
		for i := range 6 {
			own, cancel := context.WithCancel(ctx)
			client := c.Client(i)
			running.Go(func() { _ = client.Spread(own, "g", shards, o.work(i)) })
			time.Sleep(3 * time.Second)
			leave()
			leave = cancel
			time.Sleep(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(late)
		p99 := late[len(late)*99/100]
		t.Logf("%d maps: %d changes, p50 %v, p99 %v", members, len(late), late[len(late)/2], p99)
		if p99 > 200*time.Millisecond || len(late) < members*shards {
			t.Errorf("%d changes, p99 %v", len(late), p99)
		}
	})
}
