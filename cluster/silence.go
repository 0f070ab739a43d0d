package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// quorumLost tells that no leader has been reached for timing.QuorumPatience.
func (n *Node) quorumLost(detail string) {
	n.self.Meter.QuorumLosses.Inc()
	_, next := n.situation(false).explain()
	n.event(Event{Kind: QuorumLost, Detail: detail, Next: next})
}

// watchSilence writes a line after each growing pause without a leader, so that the
// end of a log always has the present reason. A member that waits for its first
// cluster is no trouble at first: the others may start some seconds later.
func (n *Node) watchSilence() {
	pause := timing.TellAgain
	var alone time.Time
	for n.ctx.Err() == nil {
		changed := n.link.Changed()
		if _, _, ok := n.link.Leader(); ok {
			pause, alone = timing.TellAgain, time.Time{}
			select {
			case <-changed:
			case <-n.ctx.Done():
			}
			continue
		}
		if alone.IsZero() {
			alone = time.Now()
		}
		again := time.NewTimer(pause)
		select {
		case <-changed:
		case <-n.ctx.Done():
		case <-again.C:
			n.tellSilence(time.Since(alone))
			pause = min(2*pause, timing.ChatterMost)
		}
		again.Stop()
	}
}

func (n *Node) tellSilence(since time.Duration) {
	s := n.situation(false)
	reason, next := s.explain()
	level, phrase := slog.LevelWarn, "no leader"
	if !s.founded {
		phrase = "no cluster yet"
		if since < timing.Unfounded {
			level = slog.LevelInfo
		}
	}
	n.self.Log.Log(context.Background(), level, phrase, "since", since.Round(time.Second), "reason", reason, "next", next)
}
