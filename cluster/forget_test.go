package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// tables runs f on the table of each member that has one.
func (b *bubble) tables(f func(name string, m *machine.State)) {
	for name, n := range b.nodes {
		if r := n.roles.current(); r != nil {
			r.table.view(func(m *machine.State) { f(name, m) })
		}
	}
}

// A session that nobody beats for is gone from every voter's table, with what it
// held and waited for, and a late beat through any member says so.
func TestAnExpiredSessionIsGoneEverywhere(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
		b.ready(thin)
		b.holder(thin, 1, "k")
		b.propose(thin, machine.Acquire{Session: sid(1), Seq: 2, Key: "d", Spec: machine.Spec{Delay: 3000}})
		b.holder(nodes[1], 2, "kept")
		defer b.beating(nodes[1], 2)()
		b.propose(thin, machine.Acquire{Session: sid(1), Seq: 3, Key: "kept"})
		time.Sleep(200 * time.Millisecond) // followers hear of a commit with the next heartbeat
		b.tables(func(name string, m *machine.State) {
			if n := m.Counts(); n.Grants != 3 || n.Waiters != 1 || n.Sessions != 2 {
				t.Errorf("%s: %+v", name, n)
			}
		})
		time.Sleep(2*time.Second + 200*time.Millisecond)
		for _, n := range append(nodes, thin) {
			if err := n.link.Beat(b.within(time.Second), sid(1)); !errors.Is(err, replica.ErrNoSession) {
				t.Errorf("a late beat through %s: %v", n.Name(), err)
			}
		}
		time.Sleep(4 * time.Second) // the delay, too
		b.tables(func(name string, m *machine.State) {
			if n := m.Counts(); n.Grants != 1 || n.Waiters != 0 || n.Sessions != 1 || n.Answers != 0 {
				t.Errorf("%s keeps %+v", name, n)
			}
			if _, ok := m.Session(sid(1)); ok {
				t.Errorf("%s knows the session", name)
			}
		})
		k := b.leader().leader.Load().keeper
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.sessions) != 1 || len(k.delays) != 0 {
			t.Errorf("the leader counts for %d sessions and %d delays", len(k.sessions), len(k.delays))
		}
	})
}

// A voter that was cut off until the log it needs was gone comes by a snapshot to
// the table of the others: holders, queues, values and sessions.
func TestACutOffVoterCatchesUpBySnapshot(t *testing.T) {
	inBubble(t, func(b *bubble) {
		long := func(c *Config) { c.TTL = time.Minute }
		nodes := []*Node{b.start("n1", long), b.start("n2", long), b.start("n3", long)}
		b.readyWithin(2*time.Minute, nodes...)
		leader := b.leader()
		behind := nodes[0]
		if behind == leader {
			behind = nodes[1]
		}
		node := leader.roles.current().raft
		keep := node.ReloadableConfig()
		keep.TrailingLogs = 5
		if err := node.ReloadConfig(keep); err != nil {
			t.Fatal(err)
		}
		b.net.Isolate(b.host(behind.Name()))
		for id := byte(1); id <= 4; id++ {
			b.propose(leader, machine.Open{Session: sid(id), Client: fmt.Sprint("c", id), Node: "n", TTL: 60_000})
		}
		var last machine.Token
		for i := range 20 {
			id := sid(byte(i%3 + 1))
			o := b.propose(leader, machine.Acquire{Session: id, Seq: uint64(i + 1), Key: fmt.Sprint("k", i%9)})
			last = max(last, o.Token)
			if o.Code == machine.Granted && i%2 == 0 {
				b.propose(leader, machine.SetValue{Session: id, Token: o.Token, Rev: 1, Value: []byte{byte(i)}})
			}
		}
		b.propose(leader, machine.Close{Session: sid(4)})
		if err := node.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		b.net.Heal()
		time.Sleep(10 * time.Second)
		if n := behind.roles.current().raft.Stats()["last_snapshot_index"]; n == "0" {
			t.Error("no snapshot was needed")
		}
		digests := make(map[[sha256.Size]byte][]string)
		b.tables(func(name string, m *machine.State) {
			digests[m.Digest()] = append(digests[m.Digest()], name)
			if n := m.Counts(); n.Sessions != 3 || n.Grants != 9 || n.Waiters != 11 {
				t.Errorf("%s: %+v", name, n)
			}
		})
		if len(digests) != 1 {
			t.Errorf("the tables differ: %v", digests)
		}

		// Nothing is missing when it comes to lead.
		id := behind.roles.current().id
		if err := node.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(id)).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if l := b.leader(); l != behind {
			t.Fatalf("%s leads", l.Name())
		}
		o := b.propose(behind, machine.Acquire{Session: sid(1), Seq: 100, Key: "new"})
		if o.Code != machine.Granted || o.Token != last+1 {
			t.Errorf("the next grant is %+v, after token %d", o, last)
		}
	})
}

// A cluster that is founded anew, after all of the former is lost, begins above
// the tokens of that, and above any that a founder remembers.
func TestTokensRiseOverAFoundingAnew(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		var last machine.Token
		var clusters []machine.ClusterID
		for round, remembered := range []machine.Token{0, 0, 1 << 52} {
			if round > 0 {
				for _, name := range []string{"n1", "n2", "n3"} {
					b.crash(name)
				}
				n := b.start("n2")
				if err := n.id.update(func(r *identityRecord) { r.Token = uint64(remembered) }); err != nil {
					t.Fatal(err)
				}
				b.start("n1")
				b.start("n3")
				b.readyWithin(time.Minute, b.nodes["n1"], n, b.nodes["n3"])
			}
			n := b.nodes["n1"]
			clusters = append(clusters, n.clusterID())
			for i := range 3 {
				id := byte(10*round + i + 1)
				token, _ := b.holder(n, id, fmt.Sprint("k", i))
				if token <= last || token <= remembered || token > machine.MaxToken {
					t.Errorf("founding %d: token %d after %d, %d was remembered", round, token, last, remembered)
				}
				last = token
			}
		}
		if clusters[0] == clusters[1] || clusters[1] == clusters[2] {
			t.Error("not founded anew")
		}
	})
}
