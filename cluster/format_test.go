package cluster

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// formOf starts three nodes of which one, n1, says that it reads the given format.
func (b *bubble) formOf(format uint8) (nodes []*Node) {
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, b.start(name))
	}
	nodes[0].gossip.update(func(m *metadata) { m.Format = format })
	b.ready(nodes...)
	return nodes
}

// While one voter reads the first format only, nothing of a later one is
// proposed; and nothing is in its way once that voter has been upgraded. From
// then on a member that reads less is not made a voter.
func TestNothingIsProposedThatAVoterDoesNotRead(t *testing.T) {
	for _, advertised := range []uint8{0, 1} {
		inBubble(t, func(b *bubble) {
			nodes := b.formOf(advertised)
			thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
			b.ready(thin)
			b.propose(thin, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 2000})
			defer b.beating(thin, 1)()
			shared := func(seq uint64) machine.Acquire {
				return machine.Acquire{Session: sid(1), Seq: seq, Key: "k", Spec: machine.Spec{Mode: machine.Shared}}
			}
			time.Sleep(10 * time.Second)
			for _, n := range []*Node{thin, b.leader()} {
				_, err := n.link.Propose(b.within(5*time.Second), shared(1))
				var e *replica.Error
				if !errors.Is(err, ErrVersion) || !errors.As(err, &e) || e.Unknown {
					t.Errorf("%s: %v", n.Name(), err)
				}
			}
			if o := b.propose(thin, machine.Acquire{Session: sid(1), Seq: 2, Key: "plain"}); o.Code != machine.Granted {
				t.Errorf("a plain acquire: %+v", o)
			}
			// A thin member's format is nobody's concern.
			thin.gossip.update(func(m *metadata) { m.Format = 1 })
			nodes[0].gossip.update(func(m *metadata) { m.Format = machine.MaxFormat })
			time.Sleep(10 * time.Second)
			// Nothing was applied before: the seq is as good as new.
			if o := b.propose(thin, shared(1)); o.Code != machine.Granted {
				t.Errorf("%+v", o)
			}
			// A voter that is not seen is of the first format.
			if f := b.leader().gossip.format("n9#1"); f != 1 {
				t.Errorf("format %d", f)
			}
			b.crash("n2")
			time.Sleep(2 * time.Minute)
			if l := b.leader(); l == thin || slices.ContainsFunc(l.roles.current().servers(), func(s server) bool {
				return strings.HasPrefix(s.ID, "thin#")
			}) {
				t.Error("a member that does not read the table's format was made a voter")
			}
		})
	}
}

// A cluster whose members read everything has the latest format before it serves.
func TestNewClustersHaveTheLatestFormat(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		if f := b.leader().leader.Load().table.format(); f != machine.MaxFormat {
			t.Errorf("format %d", f)
		}
	})
}

// Grants tell the time at which their entry was put in the log, the same on
// every voter, in memory or read again from a disk.
func TestTablesAgreeOnTheTime(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			change := func(name string) func(*Config) {
				return func(c *Config) {
					c.TTL = time.Minute
					if durable {
						c.Dir = filepath.Join(dir, name)
					}
				}
			}
			names := []string{"n1", "n2", "n3"}
			for _, name := range names {
				b.start(name, change(name))
			}
			b.readyWithin(2*time.Minute, b.nodes["n1"], b.nodes["n2"], b.nodes["n3"])
			n := b.nodes["n1"]
			b.propose(n, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 60_000})
			var asked []time.Time
			for i := range 5 {
				time.Sleep(1234567 * time.Microsecond)
				asked = append(asked, time.Now())
				b.propose(n, machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: string(rune('a' + i))})
			}
			check := func() {
				t.Helper()
				time.Sleep(2 * time.Second)
				digests := make(map[[sha256.Size]byte][]string)
				for name, n := range b.nodes {
					n.roles.current().table.view(func(m *machine.State) {
						digests[m.Digest()] = append(digests[m.Digest()], name)
						for i, at := range asked {
							st := m.Status(string(rune('a'+i)), 1)
							if st.Held != 1 {
								t.Fatalf("%s: %+v", name, st)
							}
							if d := time.UnixMilli(int64(st.Holders[0].At)).Sub(at); d < -time.Millisecond || d > 100*time.Millisecond {
								t.Errorf("%s: granted %v after it was asked for", name, d)
							}
						}
					})
				}
				if len(digests) != 1 {
					t.Errorf("the tables differ: %v", digests)
				}
			}
			check()
			if !durable {
				return
			}
			// All at once, so that the tables come from the disks.
			for _, name := range names {
				b.crash(name)
			}
			for _, name := range names {
				b.start(name, change(name))
			}
			b.leader()
			check()
		})
	}
}

// A member that reads less is not invited beside the raise, nor promoted if it was
// invited just before.
func TestRaiseBesideAnInvitation(t *testing.T) {
	for offset := 2200 * time.Millisecond; offset < 4200*time.Millisecond; offset += 400 * time.Millisecond {
		inBubble(t, func(b *bubble) {
			five := func(c *Config) { c.Voters = 5 }
			var nodes []*Node
			for _, name := range []string{"n1", "n2", "n3"} {
				n := b.start(name, five)
				n.gossip.update(func(m *metadata) { m.Format = 1 })
				nodes = append(nodes, n)
			}
			b.ready(nodes...)
			time.Sleep(3 * time.Second)
			l := b.leader()
			for _, n := range nodes {
				if n != l {
					n.gossip.update(func(m *metadata) { m.Format = machine.MaxFormat })
				}
			}
			time.Sleep(3 * time.Second)
			for _, name := range []string{"d1", "d2"} {
				n := b.start(name, func(c *Config) { c.InitialSize = 0; c.Voters = 5 })
				if name == "d1" {
					n.gossip.update(func(m *metadata) { m.Format = 1 })
				}
			}
			time.Sleep(offset)
			l.gossip.update(func(m *metadata) { m.Format = machine.MaxFormat })
			time.Sleep(20 * time.Second)
			if f := l.leader.Load().table.format(); f != machine.MaxFormat {
				return // the old member was there first, and is waited for
			}
			for _, s := range l.roles.current().servers() {
				if strings.HasPrefix(s.ID, "d1#") {
					t.Errorf("after %v: %s, voter %v, does not read the table's format", offset, s.ID, s.Voter)
				}
			}
		})
	}
}

// A member that was put back to an earlier version after the table was raised does
// not lead, nor vote, nor keep a snapshot, with a table that is not the others'.
func TestAVoterThatIsPutBackVotesNoMore(t *testing.T) {
	for _, leads := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			nodes := b.form()
			leader := b.leader()
			n := leader
			for _, o := range nodes {
				if !leads && o != leader {
					n = o
				}
			}
			r := n.roles.current()
			term := leader.leader.Load().term
			r.table.apply(machine.EncodeCommands([]machine.Command{machine.Raise{Term: term, Format: machine.MaxFormat + 1}}), time.Now())
			if err := r.raft.Snapshot().Error(); err == nil || !strings.Contains(err.Error(), errBeyond.Error()) {
				t.Errorf("snapshot: %v", err)
			}
			if r.establish(n, r.term()) != nil {
				t.Error("it leads")
			}
			time.Sleep(10 * time.Second)
			if n.roles.current() != nil || n.leader.Load() != nil {
				t.Error("it votes")
			}
			b.holder(n, 1, "k") // the others grant, and it goes on without a vote
		})
	}
}
