package cluster

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// ghost is a process that exists in forged packets alone.
func ghost(i int) member.Process {
	return member.Process{Name: fmt.Sprint("ghost", i), Boot: 1, Addr: fmt.Sprintf("192.0.2.1:%d", i+1)}
}

// ask has everybody asked who is due, in vain.
func (m *meetings) ask() {
	for {
		list, _ := m.due(time.Now())
		if len(list) == 0 {
			return
		}
		for _, p := range list {
			m.tried(p)
		}
	}
}

// Gossip's word of members of another cluster holds the first grant back for a while,
// and not for as long as somebody repeats or varies the word. A member that has shown
// itself on a stream holds the grant back, however many ghosts there are.
func TestGhostsOfAnotherClusterHoldNoGrantForEver(t *testing.T) {
	const window = 3 * time.Second
	for _, ghosts := range []int{1, maxMeetings + 1} {
		synctest.Test(t, func(t *testing.T) {
			m := newMeetings()
			began := time.Now()
			m.met(ghost(0), ghost(0).Addr, false)
			if !m.holds(window) {
				t.Error("the word holds nothing")
			}
			for i := 0; m.holds(window); i++ {
				for g := range ghosts {
					m.met(ghost(i+g), ghost(i+g).Addr, false)
				}
				m.ask()
				if time.Sleep(500 * time.Millisecond); time.Since(began) > timing.GhostPatience+time.Second {
					t.Fatalf("%d ghosts hold the grant back for ever", ghosts)
				}
			}
			shown := member.Process{Name: "b", Boot: 2}
			m.met(shown, "", true)
			if !m.holds(window) {
				t.Error("ghosts hide a member that has shown itself")
			}
			m.judged(shown, pass)
			if m.holds(window) {
				t.Error("held after the verdict")
			}
		})
	}
}

// A word each time that the hold of the last word is over leaves the grant free for most
// of the time.
func TestWordsInTurnHoldNoGrantForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeetings()
		free, longest := time.Duration(0), time.Duration(0)
		for i := range 600 {
			if i%51 == 0 {
				m.met(ghost(i), ghost(i).Addr, false)
				m.ask()
			}
			if free += 100 * time.Millisecond; m.holds(15 * time.Second) {
				free = 0
			}
			longest = max(longest, free)
			time.Sleep(100 * time.Millisecond)
		}
		if longest < 5*time.Second {
			t.Errorf("free for %v at a time", longest)
		}
	})
}

// A process that the word named first, and that was not asked yet, counts until it
// was: so a flood hides nobody.
func TestAFloodOfGhostsHidesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeetings()
		m.met(ghost(0), ghost(0).Addr, false)
		for range 60 {
			time.Sleep(time.Second)
			m.met(ghost(0), ghost(0).Addr, false)
		}
		if !m.holds(3 * time.Second) {
			t.Error("forgotten before it was asked")
		}
		m.ask()
		if m.holds(3 * time.Second) {
			t.Error("held after it was asked in vain")
		}
	})
}

// A process tells its own cluster, and no other process's.
func TestNobodyAsksAboutClustersInAnotherName(t *testing.T) {
	n := inNoCluster(t)
	n.meetings = newMeetings()
	near, far := net.Pipe()
	served := stream.New(far, func(q *stream.Request) {
		n.answerLineage(&port.Conn{Hello: port.Hello{From: port.Peer{Name: "guest", Boot: 3}}}, q)
	})
	asker := stream.New(near, func(*stream.Request) {})
	served.Start()
	asker.Start()
	defer served.Close()
	defer asker.Close()
	v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"b#1"}, Floor: 1}
	for _, from := range []wire.LineageOf{{Name: "b", Boot: 3, Founding: &v}, {Name: "guest", Boot: 4, Founding: &v}} {
		f, err := asker.Call(t.Context(), wire.Lineage, wire.Marshal(&wire.LineageRequest{From: from}))
		if err != nil || f.Code != wire.CodeBad {
			t.Errorf("%s.%d: %v, %v", from.Name, from.Boot, f.Code, err)
		}
	}
}
