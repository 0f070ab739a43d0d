package cluster

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/transport"
)

// tape keeps the packets that members send.
type tape struct {
	mu      sync.Mutex
	stopped bool
	packets [][]byte
}

// taped is a network whose endpoints send to a tape too.
type taped struct {
	transport.Network
	tape *tape
}

func (n taped) Listen(addr string) (transport.Endpoint, error) {
	e, err := n.Network.Listen(addr)
	return tapedEndpoint{e, n.tape}, err
}

type tapedEndpoint struct {
	transport.Endpoint
	tape *tape
}

func (e tapedEndpoint) WriteTo(p []byte, addr string) error {
	e.tape.mu.Lock()
	if !e.tape.stopped {
		e.tape.packets = append(e.tape.packets, slices.Clone(p))
	}
	e.tape.mu.Unlock()
	return e.Endpoint.WriteTo(p, addr)
}

// Gossip has no guard against packets that come again. A recorded packet sent later,
// an old life, an old leave, an old leader's, moves no vote and no lock, and causes no
// election.
func TestReplayedPacketsMoveNoVoteAndNoLock(t *testing.T) {
	inBubble(t, func(b *bubble) {
		record := &tape{}
		secret := NewSecret()
		closed := func(c *Config) {
			c.Security.Secrets = [][]byte{secret}
			c.Network = taped{c.Network, record}
		}
		b.form(closed)
		b.join("n4", closed, thin)
		b.leave("n4")              // an old leave
		b.crash(b.leader().Name()) // an old leader, and an old death
		missing := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(name string) bool { return b.nodes[name] != nil })[0]
		b.leader()
		b.join(missing, closed)
		b.join("n4", closed, thin)
		time.Sleep(30 * time.Second)
		record.mu.Lock()
		record.stopped = true
		record.mu.Unlock()

		holder := b.nodes["n4"]
		token, events := b.hold(holder, 1, "key")
		if token == 0 {
			t.Fatal("the key is not granted")
		}
		stop := b.beat(holder, 1)
		leader, voters, told := b.leader(), slices.Sorted(slices.Values(b.voters())), len(b.told())
		if len(record.packets) < 200 || len(voters) != 3 {
			t.Fatalf("%d packets, voters %q", len(record.packets), voters)
		}
		for range testrounds.Rounds(1, 2) {
			for i, p := range record.packets {
				for _, n := range b.nodes {
					n.gossip.Packet(slices.Clone(p), b.addr("n2"), time.Now())
				}
				if i%20 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
			}
			for range 6 {
				time.Sleep(5 * time.Second)
				if got := slices.Sorted(slices.Values(b.voters())); !slices.Equal(got, voters) || b.leader() != leader {
					t.Fatalf("voters %q, led by %s; before %q, led by %s", got, b.leader().Name(), voters, leader.Name())
				}
			}
		}
		for name, n := range b.nodes {
			if c := n.self.Refused.Counts(); len(c) > 0 {
				t.Errorf("%s refused packets, and the test shows nothing: %v", name, c)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("the holder's beats: %v", err)
		}
		select {
		case e := <-events:
			t.Errorf("the holder was told %+v", e)
		default:
		}
		for _, e := range b.told()[told:] {
			if strings.Contains(e, "LeaderChanged") || strings.Contains(e, "Voter") || strings.Contains(e, "QuorumLost") {
				t.Error(e)
			}
		}
	})
}
