package gossip

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// ghost is a process that exists in forged packets alone.
func ghost(i int) member.Process {
	return member.Process{Name: fmt.Sprint("ghost", i), Boot: 1, Addr: fmt.Sprintf("10.9.%d.%d:7000", i/250, 1+i%250)}
}

// haunt tells n of ghosts.
func (n *node) haunt(keys [][]byte, from, to int, incarnation uint32) {
	for i := from; i < to; i++ {
		n.Packet(forge(keys, msgAlive, new(aliveAt(ghost(i), incarnation, member.Metadata{Leads: math.MaxUint64}))), "10.0.0.2:7000", time.Now())
		synctest.Wait()
	}
}

// ghosts returns the number of ghosts among the living.
func (n *node) ghosts() int { return strings.Count(n.sees(), "ghost") }

// Few ghosts are listed, however many gossip tells of; they disappear by themselves; and
// meanwhile an honest member is listed as soon as it has answered.
func TestGhostsAreBounded(t *testing.T) {
	inTown(t, func(w *town) {
		keys := [][]byte{keyOf(1)}
		a := w.start("10.0.0.1", "a", keyed(keys...), counted)
		b := w.start("10.0.0.2", "b", keyed(keys...), counted)
		time.Sleep(5 * time.Second)
		a.haunt(keys, 0, 120, 1)
		b.haunt(keys, 120, 160, 1)
		for _, n := range []*node{a, b} {
			if got := n.ghosts(); got == 0 || got > maxUnproven {
				t.Errorf("%s lists %d ghosts, want up to %d", n.self.Name, got, maxUnproven)
			}
		}
		c := w.start("10.0.0.3", "c", keyed(keys...))
		time.Sleep(5 * time.Second) // 160 dials, 160 a second
		for _, n := range w.nodes {
			if s := n.sees(); !strings.HasPrefix(s, "a b c") || n.ghosts() > maxUnproven {
				t.Errorf("%s sees %.40q, and %d ghosts", n.self.Name, s, n.ghosts())
			}
		}
		if n := a.cfg.Self.Refused.Counts()[refused.Flood]; n < 80 {
			t.Errorf("%d were refused", n)
		}
		time.Sleep(6 * time.Minute)
		for _, n := range w.nodes {
			if n.sees() != "a b c" {
				t.Errorf("%s sees %.60q six minutes later", n.self.Name, n.sees())
			}
		}
		c.census.mu.Lock()
		defer c.census.mu.Unlock()
		if len(c.census.queue.waiting) > 0 || c.census.unproven > 2 {
			t.Errorf("%d wait, %d are unproven", len(c.census.queue.waiting), c.census.unproven)
		}
	})
}

// All members of a large cluster that start at once list each other soon.
func TestManyMembersStartAtOnce(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain":   counted,
		"sealed":  func(c *Config) { counted(c); keyed(keyOf(1))(c) },
		"streams": func(c *Config) { counted(c); c.InStreams = true },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "streams" && !testrounds.Full() {
				t.Skip("one kind is enough for the plain run")
			}
			many := testrounds.Rounds(maxUnproven+4, 300)
			if name == "streams" {
				many = min(many, 60) // each member has a stream to each
			}
			inTown(t, func(w *town) {
				for i := range many {
					w.start(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250), fmt.Sprint("m", i), change)
				}
				began := time.Now()
				for short := many; short > 0; {
					time.Sleep(500 * time.Millisecond)
					short = 0
					for _, n := range w.nodes {
						if len(n.Alive()) < many {
							short++
						}
					}
					if took := time.Since(began); took > 40*time.Second {
						t.Fatalf("%d of %d members do not list all after %v", short, many, took)
					}
				}
				t.Logf("%d members list each other after %v", many, time.Since(began))
				for _, n := range w.nodes {
					if c := n.cfg.Self.Refused.Counts(); len(c) > 0 {
						t.Fatalf("%s refused %v", n.self.Name, c)
					}
				}
			})
		})
	}
}

// A name is proved by its owner's certificate, and boots are free. So the processes of
// one name are bounded.
func TestProcessesOfANameAreBounded(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a", counted)
		for boot := range uint64(3 * maxOfName) {
			p := member.Process{Name: "many", Boot: boot + 1, Addr: "10.9.0.1:7000"}
			a.Met(p.Name, p.Boot, true, "")
			a.Packet(forge(nil, msgAlive, new(aliveAt(p, 1, member.Metadata{}))), "10.0.0.2:7000", time.Now())
			synctest.Wait()
		}
		if n := strings.Count(a.sees(), "many"); n != maxOfName {
			t.Errorf("%d are listed, want %d", n, maxOfName)
		}
		for boot := range uint64(4 * maxKnown) {
			a.Met("others", boot+1, true, "")
		}
		a.census.mu.Lock()
		defer a.census.mu.Unlock()
		if n := len(a.census.proven); n > 2*maxKnown {
			t.Errorf("%d proofs are kept", n)
		}
	})
}

// A living member that is called dead, and cannot say otherwise, stays on the list of All
// whatever number of ghosts die after it: its address is needed.
func TestDeadGhostsDisplaceNoProvenProcess(t *testing.T) {
	inTown(t, func(w *town) {
		keys := [][]byte{keyOf(1)}
		a, b := w.start("10.0.0.1", "a", keyed(keys...), counted), w.start("10.0.0.2", "b", keyed(keys...))
		time.Sleep(5 * time.Second)
		a.Met(b.self.Name, b.self.Boot, true, "")
		die := func(p member.Process) {
			a.Packet(forge(keys, msgDead, &forgedDead{math.MaxUint32, gossipName(p), gossipName(p)}), "10.0.0.2:7000", time.Now())
			time.Sleep(time.Millisecond)
		}
		die(b.self.Process())
		if a.sees() != "a" {
			t.Fatalf("a sees %q: the test shows nothing", a.sees())
		}
		for i := range maxSeen + 8 {
			a.haunt(keys, i, i+1, 1)
			die(ghost(i))
		}
		all := a.All()
		if len(all) > maxSeen || !slices.ContainsFunc(all, func(s member.Sighting) bool { return s.Process == b.self.Process() }) {
			t.Errorf("%d processes are listed, and b is forgotten", len(all))
		}
	})
}

// A flood of ghosts that live and die at once leaves room for newcomers, while the flood
// lasts.
func TestAFloodOfDyingGhostsLeavesRoom(t *testing.T) {
	inTown(t, func(w *town) {
		keys := [][]byte{keyOf(1)}
		a := w.start("10.0.0.1", "a", keyed(keys...), counted)
		b := w.start("10.0.0.2", "b", keyed(keys...), counted)
		time.Sleep(time.Second)
		i := 0
		flood := func(n int) {
			for range n {
				p := ghost(i % 60000)
				p.Boot = uint64(1 + i)
				i++
				a.Packet(forge(keys, msgAlive, new(aliveAt(p, 1, member.Metadata{}))), "10.0.0.2:7000", time.Now())
				a.Packet(forge(keys, msgDead, &forgedDead{1, gossipName(p), "x"}), "10.0.0.2:7000", time.Now())
				synctest.Wait()
			}
		}
		flood(maxGhosts + maxUndialled)
		c := w.start("10.0.0.3", "c", keyed(keys...))
		for range 50 {
			flood(20)
			time.Sleep(100 * time.Millisecond)
		}
		for _, n := range []*node{a, b, c} {
			if s := n.sees(); !strings.HasPrefix(s, "a b c") {
				t.Errorf("%s sees %.40q", n.self.Name, s)
			}
		}
		a.census.mu.Lock()
		defer a.census.mu.Unlock()
		if n := len(a.census.living) + len(a.census.dead); n > maxKnown {
			t.Errorf("%d are known", n)
		}
	})
}

// A name costs nothing to a holder of the secret. One host that proves ever-new names takes
// a part of the room, and the processes of other hosts find theirs.
func TestProcessesOfAHostAreBounded(t *testing.T) {
	c := newCensus()
	enter := func(name, host string) bool {
		p := member.Process{Name: name, Boot: 1}
		m := &memberlist.Node{Name: gossipName(p)}
		c.prove(p, true, host)
		if !c.shows(p) || c.admits(m, p) != admitted {
			return false
		}
		c.note(m, p, true)
		return true
	}
	entered := 0
	for i := range 2 * maxKnown {
		if enter(fmt.Sprint("many", i), "10.9.0.1") {
			entered++
		}
	}
	if entered != maxOfHost {
		t.Errorf("%d processes of one host, want %d", entered, maxOfHost)
	}
	for i := range maxOfHost {
		if !enter(fmt.Sprint("honest", i), "10.0.0.2") {
			t.Fatalf("no room for process %d of another host", i)
		}
	}
	// Names of the past make room for those of the present.
	c = newCensus()
	for i := range 2 * maxOfHost {
		c.prove(member.Process{Name: fmt.Sprint("past", i), Boot: 1}, true, "10.9.0.1")
	}
	if !enter("present", "10.9.0.1") || len(c.proven) != maxOfHost || c.ofHost["10.9.0.1"] != maxOfHost {
		t.Errorf("%d proofs, %d of the host", len(c.proven), c.ofHost["10.9.0.1"])
	}
}

// The addresses of a host count together.
func TestTheAddressesOfAHostAreOne(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		one  bool
	}{
		{"10.9.0.1:1", "10.9.0.1:2", true},
		{"10.9.0.1:1", "[::ffff:10.9.0.1]:2", true},
		{"10.9.0.1:1", "10.9.0.2:1", false},
		{"[2001:db8:0:1::7]:1", "[2001:db8:0:1:ffff::9]:1", true},
		{"[2001:db8:0:1::7]:1", "[2001:db8:0:2::7]:1", false},
		{"127.0.0.1:1", "127.8.9.1:2", true},
		{"127.0.0.1:1", "[::1]:2", true},
		{"a.example:1", "a.example:2", true},
		{"a.example:1", "b.example:1", false},
	} {
		if one := hostOf(tt.a) == hostOf(tt.b); one != tt.one {
			t.Errorf("%s and %s: %q, %q", tt.a, tt.b, hostOf(tt.a), hostOf(tt.b))
		}
	}
}

// An invented process with other versions of gossip's protocol keeps no newcomer out,
// neither living nor dead.
func TestAVersionStopsNoJoin(t *testing.T) {
	for _, vsn := range [][]byte{{1, 5, 9, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, {1, 5, 2, 9, 9, 9}, {1, 5, 2, 0, 0, 9}} {
		inTown(t, func(w *town) {
			keys := [][]byte{keyOf(1)}
			w.start("10.0.0.1", "a", keyed(keys...), counted)
			b := w.start("10.0.0.2", "b", keyed(keys...), counted)
			time.Sleep(5 * time.Second)
			haunt := func(i int) {
				m := aliveAt(ghost(i), 1, member.Metadata{})
				m.Vsn = vsn
				b.Packet(forge(keys, msgAlive, &m), "10.0.0.9:7000", time.Now())
				synctest.Wait()
			}
			haunt(0)
			time.Sleep(20 * time.Second) // the ghost is dead by then
			c := w.start("10.0.0.3", "c", keyed(keys...), counted)
			for i := range 6 {
				haunt(1 + i)
				time.Sleep(10 * time.Second)
			}
			if s := c.sees(); !strings.HasPrefix(s, "a b c") {
				t.Errorf("%v: a minute after its start c sees %q", vsn, s)
			}
		})
	}
}

// A member that restarts is listed, the hundredth time too.
func TestAMemberRestartsOften(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a", counted)
		for boot := range uint64(maxDeadOfName + 36) {
			p := member.Process{Name: "many", Boot: boot + 1, Addr: "10.9.0.1:7000"}
			a.Met(p.Name, p.Boot, true, "")
			a.Packet(forge(nil, msgAlive, new(aliveAt(p, 1, member.Metadata{}))), "10.0.0.2:7000", time.Now())
			synctest.Wait()
			if s := a.sees(); s != "a many" {
				t.Fatalf("after %d restarts, one each five minutes, a sees %q", boot, s)
			}
			a.Packet(forge(nil, msgDead, &forgedDead{math.MaxUint32, gossipName(p), gossipName(p)}), "10.0.0.2:7000", time.Now())
			time.Sleep(5 * time.Minute)
		}
	})
}
