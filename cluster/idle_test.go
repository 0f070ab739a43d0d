package cluster

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// A leader whose network stands still for 700 ms goes on leading, at the default TTL: its
// followers would wait for longer, and an election would help nobody.
func TestALeaderBearsAShortSilence(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(ttl(10 * time.Second))
		leader := b.leader()
		term := leader.currentTerm()
		for range 20 {
			time.Sleep(3*time.Second + rand.N(time.Second))
			b.net.Isolate(b.host(leader.Name()))
			time.Sleep(700 * time.Millisecond)
			b.net.Heal()
		}
		time.Sleep(time.Second)
		if leader.currentTerm() != term {
			t.Error("another term")
		}
	})
}

// The looks that a member takes again and again meet: each of them comes at a moment of the
// member's grid, so that ten moments a second are all the wake-ups that they cost.
func TestTheLooksOfAMemberMeet(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(ttl(10 * time.Second))
		time.Sleep(20 * time.Second)
		var mu sync.Mutex
		looks := make(map[string]map[time.Time]int) // by member: at which moments, and how many
		for name := range b.nodes {
			looks[name] = make(map[time.Time]int)
		}
		for name, n := range b.nodes {
			n.self.Grid.Watch(func(now time.Time, every time.Duration) {
				mu.Lock()
				looks[name][now]++
				mu.Unlock()
			})
		}
		const seconds = 30
		time.Sleep(seconds * time.Second)
		leader := b.leader().Name()
		mu.Lock()
		defer mu.Unlock()
		for name, n := range b.nodes {
			beside, all := 0, 0
			n.self.Grid.Watch(func(time.Time, time.Duration) {})
			for at, count := range looks[name] {
				all += count
				if n.self.Grid.Next(at, timing.Attend) != timing.Attend {
					beside += count
				}
			}
			// The voter's look at its leader, a leader's look at sessions, and at each second the
			// looks of the seat, of the founding and of the voters.
			least := seconds * (10 + 2)
			if name == leader {
				least = seconds * (10 + 10 + 3)
			}
			if moments := len(looks[name]); beside > 0 || all < least-10 || moments > seconds*10+1 {
				t.Errorf("%s: %d looks, %d of them beside the grid, at %d moments; want %d", name, all, beside, moments, least)
			}
		}
	})
}
