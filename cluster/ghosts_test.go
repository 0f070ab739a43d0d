package cluster

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// gossipAlive is gossip's packet about a living process, as any member can send one.
func gossipAlive(p member.Process, incarnation uint32, meta member.Metadata) []byte {
	type alive struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []byte
	}
	at := netip.MustParseAddrPort(p.Addr)
	meta.Version = member.ProtocolVersion
	b := append([]byte{244, byte(len("test"))}, "test"...) // the label
	b = append(b, 4)                                       // alive
	return append(b, wire.Marshal(&alive{
		Incarnation: incarnation, Node: fmt.Sprintf("%s.%d", p.Name, p.Boot), Addr: at.Addr().AsSlice(), Port: at.Port(),
		Meta: wire.Marshal(&meta), Vsn: []byte{1, 5, 2, 0, 0, 0},
	})...)
}

// haunt tells the nodes of another ghost every pause, for as long as the test runs,
// until stop is called. Of says how the ghost is described.
func (b *bubble) haunt(pause time.Duration, of func(i int) (member.Process, member.Metadata), nodes ...*Node) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			p, meta := of(i)
			for _, n := range nodes {
				n.gossip.Packet(gossipAlive(p, 1, meta), "192.0.2.1:7", time.Now())
			}
			select {
			case <-time.After(pause):
			case <-end:
				return
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

// nobody is the i-th process that does not exist.
func nobody(i int) member.Process {
	return member.Process{Name: fmt.Sprint("ghost", i), Boot: 5, Addr: fmt.Sprintf("192.0.%d.%d:7000", 2+i/250%250, 1+i%250)}
}

// An operator recovers a cluster while a member invents other members all the time.
func TestRecoverBesideGhosts(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(wants(3))[0]
		n4 := b.join("n4", thin, wants(3))
		old := *n1.founding.Value()
		b.crashed("n2", "n3")
		stop := b.haunt(time.Second, func(i int) (member.Process, member.Metadata) {
			return nobody(i), member.Metadata{Cluster: old.Cluster, Voter: true, Generation: 7}
		}, n1, n4)
		defer stop()
		time.Sleep(8 * time.Second)
		if !slices.ContainsFunc(n4.gossip.Alive(), func(s member.Sighting) bool { return s.Boot == 5 }) {
			t.Fatal("no ghost is listed: the test shows nothing")
		}
		began := time.Now()
		if err := n4.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		b.ready(n1, n4)
		t.Logf("recovered after %v", time.Since(began))
		for _, n := range []*Node{n1, n4} {
			if v := n.founding.Value(); founding.Kin(old, *v) != founding.Successor {
				t.Errorf("%s is in %+v", n.Name(), v)
			}
		}
	})
}

// A member without the voter role takes no part in a recovery, and goes on in the
// successor.
func TestAMemberWithoutTheRoleFollowsARecovery(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ca := newCertifier(b.t)
		secure := func(c *Config) {
			uri := "wardmote://test/" + c.Name
			if c.Name == "n4" {
				uri, c.Voting.Thin = uri+"?role=member", true
			}
			cert := ca.issue(uri)
			c.Security.TLS = &tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{*cert}}
		}
		n1 := b.form(secure)[0]
		n4 := b.join("n4", thin, secure)
		old := *n1.founding.Value()
		b.hold(n4, 1, "k")
		b.crashed("n2", "n3")
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.ready(n1, n4)
		t.Logf("ready after %v", time.Since(began))
		for _, n := range []*Node{n1, n4} {
			if v := n.founding.Value(); founding.Kin(old, *v) != founding.Successor {
				t.Errorf("%s is in %+v", n.Name(), v)
			}
		}
	})
}

// Many processes at addresses where nothing answers, said to be in another cluster, hold
// the first grant back for a short time.
func TestSilentGhostsHoldTheFirstGrantBriefly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		hole := b.addr("hole")
		b.net.Isolate(b.host("hole"))
		nodes := []*Node{b.start("n1")}
		stop := b.haunt(50*time.Millisecond, func(i int) (member.Process, member.Metadata) {
			p := member.Process{Name: fmt.Sprint("ghost", i%100), Boot: 5, Addr: hole}
			return p, member.Metadata{Cluster: machine.ClusterID{6, 6, 6}, Voter: true}
		}, nodes[0])
		defer stop()
		nodes = append(nodes, b.start("n2"), b.start("n3"))
		began := time.Now()
		b.eventually("the cluster grants", 30*time.Second, func() bool {
			return !slices.ContainsFunc(nodes, func(n *Node) bool { return !n.granted.Load() })
		})
		t.Logf("granting after %v", time.Since(began))
	})
}
