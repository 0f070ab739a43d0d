package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// attend keeps raft's timeouts fitting, until ctx ends, and notices a leader that
// has fallen silent: see stand.
//
//   - A follower's timeout follows the committed bound of TTLs, which is equal on
//     every voter, and never this member's own configuration. The timeout is
//     longer on a host that runs its processes late. Raft's own timer is set a
//     little later than the timeout, and works if the voters cannot ask each other.
//   - A leader takes the longest timeout, so that raft's own timers come after the moments
//     of the member's grid, at which the heartbeats go out: see heartbeats. While a server
//     does not answer, the leader takes the shortest timeout, and heartbeats come every 50
//     to 100 ms, so that the server's return is noticed soon: see reach. While leadership is
//     handed over, the leader takes the timeout of a follower on a host in time: raft
//     refuses entries for up to two of them.
//   - A candidate keeps the shortest timeout: nobody leads while it waits, and its
//     next attempt after a failed one must not wait for long.
func (r *Raft) attend(ctx context.Context) {
	next := func(now time.Time) time.Duration { return r.cfg.Self.Grid.Next(now, timing.Attend) }
	now := time.Now()
	due := now.Add(next(now))
	tick := time.NewTimer(time.Until(due))
	defer tick.Stop()
	for {
		looks := false
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		case <-tick.C:
			looks = true
			now = time.Now()
			r.patience.note(max(now.Sub(due), 0), now)
			r.trans.abandon(now)
			wait := next(now)
			due = now.Add(wait)
			tick.Reset(wait)
			if r.silent() {
				r.silence.Wake()
			}
		}
		if r.tune() && looks {
			r.pulse()
		}
	}
}

// timeout returns how long this raft as a follower waits for its leader. A follower
// without a leader waits for the shortest time: above all a leader that stepped down,
// since a link that flaps would else keep it from standing for as long as the cut
// lasted again. Its followers vote for it, although they may have heard it since:
// what it sent before it stepped down arrives when the link works.
func (r *Raft) timeout() time.Duration {
	if r.LeaderID() == "" {
		return timing.LeastElection
	}
	return r.patience.stretch(r.election())
}

// election returns the election timeout of the committed bound of TTLs.
func (r *Raft) election() time.Duration { return timing.Election(r.ttl()) }

// ttl returns the committed bound of TTLs, or 0 before the founding.
func (r *Raft) ttl() time.Duration { return time.Duration(r.fsm.bound.Load()) }

// tune loads the timeouts that fit raft's present state. It reports whether heartbeats are due
// at the moments of the grid.
func (r *Raft) tune() (pulses bool) {
	switch state := r.raft.State(); {
	case state == raft.Leader && r.transferring.Load():
		r.load(r.election())
	case state == raft.Leader && !r.missing():
		r.load(timing.MostElection)
		return true
	case state != raft.Follower:
		r.load(timing.LeastElection)
	case r.cold():
		r.load(timing.ColdElection)
	default:
		r.load(r.timeout() + 2*timing.Attend) // above the least, which nudge loads
	}
	return false
}

// load sets raft's heartbeat and election timeouts. The leader's lease cannot be
// changed in a running raft, and stays below both.
func (r *Raft) load(timeout time.Duration) {
	r.reload(func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = timeout, timeout })
}

// reload changes the configuration of the running raft.
func (r *Raft) reload(change func(c *raft.ReloadableConfig)) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	old := r.raft.ReloadableConfig()
	c := old
	if change(&c); c == old {
		return
	}
	if err := r.raft.ReloadConfig(c); err != nil {
		r.cfg.Self.Log.Debug("raft refuses a setting", "setting", c, "error", err)
	}
}

// nudge has raft check at once whether it has heard of a leader for
// timing.LeastElection, and stand, with a pre-vote, if it has not: raft looks at
// its timer whenever the timeout is lowered.
func (r *Raft) nudge() {
	r.nudged.Add(1)
	r.load(timing.LeastElection)
}

// cold reports whether raft has never heard of a leader or a candidate since it
// began.
func (r *Raft) cold() bool { return r.raft.LastContact().IsZero() && r.raft.State() == raft.Follower }

// silent reports whether this voter has heard nothing of its leader for a timeout.
func (r *Raft) silent() bool {
	return !r.cold() && r.raft.State() != raft.Leader && time.Since(r.raft.LastContact()) >= r.timeout()
}

// committedVoters returns the IDs of the voters of the last committed
// configuration, sorted, or nil if none is known.
func (r *Raft) committedVoters() []string {
	c := r.fsm.committed.Load()
	if c == nil {
		return nil
	}
	var out []string
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			out = append(out, string(s.ID))
		}
	}
	slices.Sort(out)
	return out
}
