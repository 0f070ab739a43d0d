package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
)

func TestTwentyThinMembersLockAndACrashFreesTheirKeys(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		var nodes []*Node
		for i := range 20 {
			nodes = append(nodes, b.start(fmt.Sprint("thin", i), thin, func(c *Config) { c.Voting.Thin = true }))
		}
		b.ready(nodes...)
		time.Sleep(5 * time.Second)
		if n := b.servers(); n != 3 {
			t.Fatalf("%d servers in the configuration", n)
		}
		for i, n := range nodes {
			if n.seat.Current() != nil {
				t.Errorf("%s runs raft", n.Name())
			}
			b.hold(n, byte(i+1), fmt.Sprint("key", i))
		}
		_, events := b.hold(nodes[1], 100, "key0")
		stop := b.beat(nodes[1], 100)
		b.crash("thin0")
		if e := b.next(events, 4*time.Second); e.Kind != machine.EventGranted || e.Key != "key0" {
			t.Errorf("told %+v", e)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The oldest voter's disk fails. The member runs on, thin, and another member
// votes in its place.
func TestAVoterWithAFailedDiskIsReplaced(t *testing.T) {
	inBubble(t, func(b *bubble) {
		disk := &sickDisk{Engine: raftstore.NewMemoryEngine()}
		n1 := b.start("n1", func(c *Config) { c.engine = disk })
		time.Sleep(time.Millisecond)
		n2, n3 := b.start("n2"), b.start("n3")
		b.ready(n1, n2, n3)
		n4, n5 := b.start("n4"), b.start("n5")
		b.ready(n4, n5)
		time.Sleep(10 * time.Second)
		disk.set(nil, errors.New("input/output error"))
		b.hold(n2, 1, "k")
		b.eventually("n1 is replaced", 5*time.Minute, func() bool { return len(b.voters()) == 3 && !slices.Contains(b.voters(), "n1") })
		b.hold(n1, 2, "other")
	})
}

// A voter is cut off while another member takes its place. The old voter claims to
// vote until the leader answers. The leader's own list is right from the start.
func TestTheLeaderListsWhoVotes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.join("n4")
		leader, cut := b.leader(), b.followers()[0].Name()
		b.net.Isolate(b.host(cut))
		b.eventually("the voter is replaced", time.Minute, func() bool {
			return slices.Contains(b.voters(), "n4") && !slices.Contains(b.voters(), cut)
		})
		time.Sleep(100 * time.Millisecond) // the configuration is committed, and told
		b.net.Heal()
		b.net.Cut(b.host(leader.Name()), b.host(cut))
		b.eventually("it claims to vote", time.Minute, func() bool {
			return slices.ContainsFunc(leader.gossip.Alive(), func(s member.Sighting) bool { return s.Name == cut && s.Meta.Voter })
		})
		for _, m := range leader.Members() {
			if m.Voter == (m.Name == cut) {
				t.Errorf("the leader lists %+v", m)
			}
		}
		// The stream of the leader's notice is reset. The removed voter asks the
		// leader by itself.
		time.Sleep(timing.KeepaliveTotal + time.Second)
		b.net.Heal()
		b.eventually("it votes no more", 30*time.Second, func() bool { return b.nodes[cut].seat.Current() == nil })
	})
}

// Every member tells the changes of the voters, in order. The events name the
// members, and no process: the name may have another process by then.
func TestChangedVotersAreToldOnEveryMember(t *testing.T) {
	inBubble(t, func(b *bubble) {
		told := make(map[string][]Event)
		var mu sync.Mutex
		record := func(c *Config) {
			name := c.Name
			c.Events = func(_ context.Context, e Event) {
				if e.Kind == VoterAdded || e.Kind == VoterRemoved {
					mu.Lock()
					told[name] = append(told[name], e)
					mu.Unlock()
				}
			}
		}
		nodes := []*Node{b.start("n1", record), b.start("n2", record), b.start("n3", record), b.start("n4", record)}
		b.ready(nodes...)
		time.Sleep(10 * time.Second)
		left := b.followers()[0].Name()
		var joined string
		for _, n := range nodes {
			if !slices.Contains(b.voters(), n.Name()) {
				joined = n.Name()
			}
		}
		mu.Lock()
		clear(told) // the founding may have chosen late
		mu.Unlock()
		b.leave(left)
		time.Sleep(5 * time.Second)
		late := b.join("n5", record)
		want := []Event{
			{Kind: VoterAdded, Member: Member{Name: joined, Addr: b.addr(joined)}},
			{Kind: VoterRemoved, Member: Member{Name: left, Addr: b.addr(left)}},
		}
		time.Sleep(time.Second)
		for name, n := range b.nodes {
			mu.Lock()
			if got := told[name]; n != late && !slices.Equal(got, want) || n == late && len(got) > 0 {
				t.Errorf("%s told %+v, want %+v", name, got, want)
			}
			mu.Unlock()
			set, ok := n.voterSet()
			if !ok || len(set.Voters) != 3 || set.Wanted != 3 {
				t.Errorf("%s knows %+v", name, set)
			}
			for _, v := range set.Voters {
				if !v.Present || !v.Reached || !v.Current || v.Leaving || v.Addr == "" {
					t.Errorf("%s knows %+v", name, v)
				}
			}
			for _, m := range n.Members() {
				if m.Voter != slices.Contains(b.voters(), m.Name) {
					t.Errorf("%s lists %+v", name, m)
				}
			}
		}
	})
}
