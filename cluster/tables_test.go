package cluster

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// A session without beats disappears from every voter's table, with its grants
// and waiters, and a late beat through any member says so.
func TestAnExpiredSessionIsGoneEverywhere(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		far := b.join("far", thin)
		b.hold(far, 1, "k")
		b.propose(far, delayed(1, 2, "d", 3*time.Second))
		b.hold(nodes[1], 2, "kept")
		defer b.beat(nodes[1], 2)()
		b.acquire(far, 1, 3, "kept")
		time.Sleep(200 * time.Millisecond) // followers learn of a commit with the next heartbeat
		b.tables(func(name string, m *machine.State) {
			if n := m.Counts(); n.Grants != 3 || n.Waiters != 1 || n.Sessions != 2 {
				t.Errorf("%s: %+v", name, n)
			}
		})
		time.Sleep(2*time.Second + 200*time.Millisecond)
		for _, n := range append(nodes, far) {
			if err := n.link.Beat(b.within(time.Second), sid(1)); !errors.Is(err, replica.ErrNoSession) {
				t.Errorf("a late beat through %s: %v", n.Name(), err)
			}
		}
		time.Sleep(4 * time.Second) // the delay ends too
		b.tables(func(name string, m *machine.State) {
			if n := m.Counts(); n.Grants != 1 || n.Waiters != 0 || n.Sessions != 1 || n.Answers != 0 {
				t.Errorf("%s keeps %+v", name, n)
			}
			if _, ok := m.Session(sid(1)); ok {
				t.Errorf("%s knows the session", name)
			}
		})
	})
}

// A grant tells the time of its entry, by the leader's clock. The time is the same
// on every voter, in memory and after a restart from disk.
func TestTablesAgreeOnTheTime(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, dir := range []string{"", t.TempDir()} {
		inBubble(t, func(b *bubble) {
			change := []func(*Config){ttl(time.Minute)}
			if dir != "" {
				keep := func(c *Config) { c.hostBoot = func() string { return "" } } // the session, across the restart
				change = append(change, inDir(dir), keep)
			}
			n := b.form(change...)[0]
			b.open(n, 1)
			var asked []time.Time
			for i := range 5 {
				time.Sleep(1234567 * time.Microsecond)
				asked = append(asked, time.Now())
				b.acquire(n, 1, uint64(i+1), string(rune('a'+i)))
			}
			b.agreeOn(asked)
			if dir == "" {
				return
			}
			// All stop at once: afterwards the tables come from the disks.
			for _, name := range []string{"n1", "n2", "n3"} {
				b.crash(name)
			}
			for _, name := range []string{"n1", "n2", "n3"} {
				b.start(name, change...)
			}
			b.leader()
			b.agreeOn(asked)
		})
	}
}

// agreeOn fails the test unless the voters' tables are equal, with keys a, b, c and
// so on granted at these times.
func (b *bubble) agreeOn(asked []time.Time) {
	b.t.Helper()
	time.Sleep(2 * time.Second)
	digests := make(map[[sha256.Size]byte][]string)
	b.tables(func(name string, m *machine.State) {
		digests[m.Digest()] = append(digests[m.Digest()], name)
		for i, at := range asked {
			st := m.Status(string(rune('a'+i)), 1)
			if st.Held != 1 {
				b.t.Fatalf("%s: %+v", name, st)
			}
			if d := time.UnixMilli(int64(st.Holders[0].At)).Sub(at); d < -time.Millisecond || d > 100*time.Millisecond {
				b.t.Errorf("%s: granted %v after the request", name, d)
			}
		}
	})
	if len(digests) != 1 {
		b.t.Errorf("the tables differ: %v", digests)
	}
}

func TestTheBoundOfTTLsFollowsTheMembers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		bound := func(want time.Duration) {
			t.Helper()
			for _, n := range b.nodes {
				if got := n.link.TTL(); got != want {
					t.Errorf("%s has bound %v, want %v", n.Name(), got, want)
				}
			}
		}
		bound(2 * time.Second)
		n4 := b.join("n4", thin, ttl(5*time.Second))
		time.Sleep(5 * time.Second)
		bound(5 * time.Second)
		n4.link.Claim(key(1))
		long := opening(n4, 1)
		long.TTL = 6000
		if o := b.propose(n4, long); o.Code != machine.BadCommand {
			t.Errorf("a TTL over the bound: %+v", o)
		}
		b.leave("n4")
		time.Sleep(30 * time.Second)
		bound(2 * time.Second)
	})
}
