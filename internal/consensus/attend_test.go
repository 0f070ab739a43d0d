package consensus

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

func (r *Raft) loaded() time.Duration { return r.raft.ReloadableConfig().HeartbeatTimeout }

// Followers take their timeout from the committed bound, at its Apply. A leader takes the
// longest timeout, so that raft's own heartbeats come after the moments of the grid.
func TestTimeoutsFollowTheCommittedTTL(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		for _, c := range []struct {
			entry string
			want  time.Duration
		}{
			{"ttl 10s", timing.MostElection},
			{"ttl 1s", timing.LeastElection},
			{"ttl 6s", 600 * time.Millisecond},
		} {
			b.commit(c.entry)
			time.Sleep(time.Second)
			for _, f := range b.followers() {
				if got := f.raft().loaded(); got != c.want+2*timing.Attend {
					t.Errorf("%s: %s waits %v", c.entry, f.name, got)
				}
			}
			if got := b.leader().raft().loaded(); got != timing.MostElection {
				t.Errorf("%s: the leader's timeout is %v", c.entry, got)
			}
		}
		// Every new leader does so.
		for range 3 {
			b.leader().raft().Transfer(context.Background())
			time.Sleep(time.Second)
			if got := b.leader().raft().loaded(); got != timing.MostElection {
				t.Errorf("a new leader's timeout is %v", got)
			}
		}
	})
}

// A stalling host makes its follower patient, by three times at most, and never its
// leader slow.
func TestPatience(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		after, late time.Duration
		want        time.Duration // of a second
	}{
		{0, 0, time.Second},
		{0, time.Hour, time.Second}, // once
		{0, 20 * time.Millisecond, time.Second},
		{0, 100 * time.Millisecond, 1400 * time.Millisecond},
		{0, 10 * time.Millisecond, 1400 * time.Millisecond},
		{0, time.Hour, 3 * time.Second},
		{timing.CalmHost, 0, 3 * time.Second},
		{timing.CalmHost, 0, time.Second},
		{0, 100 * time.Millisecond, time.Second},
		{0, 200 * time.Millisecond, 1400 * time.Millisecond},
		{2 * timing.CalmHost, 0, time.Second},
	} {
		now = now.Add(c.after)
		p.note(c.late, now)
		if got := p.stretch(time.Second); got != c.want {
			t.Errorf("late by %v: a second becomes %v, want %v", c.late, got, c.want)
		}
	}
}

func TestPatienceNeverSlowsALeader(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("ttl 10s")
		time.Sleep(time.Second)
		for _, c := range b.all {
			c.raft().patience.late.Store(int64(time.Hour))
			c.raft().tune()
			want := mostPatience*timing.MostElection + 2*timing.Attend
			if c.raft().raft.State() == raft.Leader {
				want = timing.MostElection
			}
			if got := c.raft().loaded(); got != want {
				t.Errorf("%s waits %v, want %v", c.name, got, want)
			}
		}
	})
}

// While a server does not answer, the leader's heartbeats come as often as ever, and so a
// server that returns is noticed soon. A server that was removed is not waited for.
func TestALeaderIsQuickWhileAServerIsMissing(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("ttl 10s")
		time.Sleep(time.Second)
		leader, away := b.leader().raft(), b.followers()[0]
		for _, remove := range []bool{false, true} {
			b.separate(away.name, true)
			time.Sleep(time.Second)
			if got := leader.loaded(); got != timing.LeastElection {
				t.Errorf("without a server: %v", got)
			}
			if remove {
				if err := leader.Remove(away.raft().ID(), b.leader().tape().prev()); err != nil {
					t.Fatal(err)
				}
			} else {
				b.separate(away.name, false)
			}
			time.Sleep(time.Second)
			if got := leader.loaded(); got != timing.MostElection {
				t.Errorf("removed: %t, all servers answer: %v", remove, got)
			}
		}
	})
}
