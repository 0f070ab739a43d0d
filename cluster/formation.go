package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
)

// This file tells how far a founding has come, so that the first seconds of a cluster
// are not silent.

// survivors is the reason of the wait after a founding.
const survivors = ", since survivors of an earlier cluster may still hold locks"

// watchFounding tells the progress of this member's way into its first cluster: when
// the addresses of Join were tried once, and then with each change of the members in
// sight, at most once in timing.TellFounding. watchSilence repeats what lasts.
func (n *Node) watchFounding() {
	select {
	case <-n.gossip.Joined():
	case <-n.ctx.Done():
		return
	}
	told := ""
	for n.ctx.Err() == nil && n.founding.Value() == nil {
		changed, entered := n.gossip.Changed(), n.entered.Wait()
		pause := time.NewTimer(timing.TellFounding)
		// The members that start together are seen within a moment: told is the end of
		// the moment, and nothing if it ends in a cluster.
		select {
		case <-pause.C:
		case <-entered:
		case <-n.ctx.Done():
		}
		pause.Stop()
		if n.ctx.Err() != nil || n.founding.Value() != nil {
			return
		}
		if text := strings.TrimPrefix(n.founding.Progress(), founding.NoCluster); text != told {
			n.event(Event{Kind: Founding, Detail: text})
			told = text
		}
		select {
		case <-changed:
		case <-entered:
		case <-n.ctx.Done():
		}
	}
}

// foundingWait returns how long the cluster still waits with its first grant. A voter
// knows; for another member the wait, which began before it heard of the cluster, is
// over in rest at the latest.
func (n *Node) foundingWait() (rest time.Duration, known bool) {
	if r := n.seat.Current(); r != nil {
		if rest, waits := r.Table().(*term.Table).FoundingWait(); waits {
			return rest, true
		}
	}
	since := n.started
	if at := n.enteredAt.Load(); at != nil {
		since = *at
	}
	return max(0, max(n.cfg.TTL, timing.LeastFounding)-n.self.Clock.Now().Sub(since)), false
}

// waitText says when a new cluster grants.
func waitText(rest time.Duration, known bool) string {
	// Never 0.0 s: the end of the wait is a committed entry, a moment later.
	text := fmt.Sprintf("%.1f s", max(rest, 100*time.Millisecond).Seconds())
	if !known {
		return "the cluster has not said yet whether it grants; if it is new, it grants in " + text + survivors
	}
	return "the cluster is founded, and grants in " + text + survivors
}
