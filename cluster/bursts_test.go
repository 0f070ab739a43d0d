package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/transport"
)

// A burst of answers or events for a member may exceed the leader's queue for a
// member that does not read. A reading member must keep its stream: on a new stream
// the same burst would come again, until the member's sessions expired.

// large is the largest value of a key.
var large = make([]byte, machine.MaxValue)

// onlyOnce is a network without new streams once enough is set.
type onlyOnce struct {
	transport.Network
	enough *atomic.Bool
}

type dialsOnce struct {
	transport.Endpoint
	enough *atomic.Bool
}

func (n onlyOnce) InMemory() {}

func (n onlyOnce) Listen(addr string) (transport.Endpoint, error) {
	e, err := n.Network.Listen(addr)
	return dialsOnce{e, n.enough}, err
}

func (e dialsOnce) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if e.enough.Load() {
		return nil, errors.New("no further stream")
	}
	return e.Endpoint.Dial(ctx, addr)
}

// inBurst runs f with a leader, the only voter, and with a thin member. During
// burst the thin member can open no stream: once the present stream is lost, the
// member's calls fail.
func inBurst(t *testing.T, f func(b *bubble, leader, far *Node, burst func(func()))) {
	inBubble(t, func(b *bubble) {
		leader := b.join("n1", alone, ttl(time.Minute))
		var enough atomic.Bool
		far := b.join("far", thin, ttl(time.Minute), func(c *Config) { c.Network = onlyOnce{c.Network, &enough} })
		b.open(leader, 1)
		b.open(far, 2)
		f(b, leader, far, func(during func()) {
			enough.Store(true)
			during()
			if err := far.link.Beat(b.within(2*time.Second), sid(2)); err != nil {
				t.Errorf("the stream was lost: %v", err)
			}
			enough.Store(false)
		})
	})
}

func TestManyLargeAnswersDoNotCostTheStream(t *testing.T) {
	inBurst(t, func(b *bubble, leader, far *Node, burst func(func())) {
		meta := strings.Repeat("m", 250)
		var acquires sync.WaitGroup
		for i := range replica.MaxListed {
			acquires.Go(func() { b.propose(leader, shared(1, uint64(i+1), "k", meta)) })
		}
		acquires.Wait()
		burst(func() {
			var reads sync.WaitGroup
			for range 25 {
				reads.Go(func() {
					a, err := far.link.Read(b.within(20*time.Second), replica.Query{Key: "k", Waiters: replica.MaxListed})
					if err != nil || len(a.Status.Holders) != replica.MaxListed {
						t.Errorf("%d holders told, %v", len(a.Status.Holders), err)
					}
				})
			}
			reads.Wait()
		})
	})
}

// Many sessions' requests wait for a key with a large value, and all are granted
// by one entry.
func TestManyLargeEventsDoNotCostTheStream(t *testing.T) {
	inBurst(t, func(b *bubble, leader, far *Node, burst func(func())) {
		const waiters = 200
		events := make(chan machine.Event, 10*waiters)
		far.link.Attach(sid(2), func(e machine.Event) { events <- e })
		token := b.acquire(leader, 1, 1, "k")
		b.propose(leader, machine.SetValue{Session: sid(1), Token: token, Rev: 1, Value: large})
		for i := range waiters {
			b.propose(far, shared(2, uint64(i+1), "k", ""))
		}
		granted := func() {
			t.Helper()
			for last := uint64(0); last < waiters; {
				e := b.next(events, 10*time.Second)
				if e.Kind != machine.EventGranted {
					continue
				}
				if e.Seq != last+1 || len(e.Value) != len(large) {
					t.Fatalf("seq %d after %d, with a value of %d bytes", e.Seq, last, len(e.Value))
				}
				last = e.Seq
			}
		}
		burst(func() {
			b.propose(leader, machine.Release{Session: sid(1), Token: token})
			granted()
		})
		// And again on a new stream, since the session never confirmed the grants.
		b.net.Isolate(b.host("far"))
		time.Sleep(30 * time.Second)
		b.net.Heal()
		granted()
	})
}

// Many requests are granted at once, each with the key's large value.
func TestManyLargeOutcomesDoNotCostTheStream(t *testing.T) {
	inBurst(t, func(b *bubble, leader, far *Node, burst func(func())) {
		token := b.acquire(leader, 1, 1, "k")
		b.propose(leader, machine.SetValue{Session: sid(1), Token: token, Rev: 1, Value: large})
		b.propose(leader, machine.Release{Session: sid(1), Token: token})
		burst(func() {
			var acquires sync.WaitGroup
			for i := range 300 {
				acquires.Go(func() {
					o, err := far.link.Propose(b.within(10*time.Second), shared(2, uint64(i+1), "k", ""))
					if err != nil || o.Code != machine.Granted || len(o.Value) != len(large) {
						t.Errorf("request %d: code %d, value of %d bytes, %v", i+1, o.Code, len(o.Value), err)
					}
				})
			}
			acquires.Wait()
		})
	})
}
