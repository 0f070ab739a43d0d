package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/wardmote/wardmote/internal/timing"
)

// This file writes the events to the log. A line is a fixed phrase, with the facts
// as attributes, and its last attribute is the next action. The level says whether
// an operator is needed: Info is a healthy life, elections and deployments
// included; Warn is trouble that may pass; Error is trouble that stays.

// next returns the action against the trouble that an event of the kind tells, or ""
// for an event of a healthy life.
func (k EventKind) next() string {
	switch k {
	case QuorumLost:
		return "see the reason; start the missing voters again, with their Dirs if they had any"
	case Conflict:
		return "compare Config of both members: one name for each member, one Join for all"
	case NodeFailed:
		return "check the disk of Dir, then start this process again; until then this member does not vote"
	}
	return ""
}

// healthy returns the last words of a line about an event without trouble.
func (k EventKind) healthy() string {
	switch k {
	case MemberLeft:
		return "nothing, unless its process should run"
	case ClusterFounded:
		return "wait for granting"
	case Founding:
		return "start the missing members, if they do not start by themselves"
	case VoterRemoved:
		return "nothing: another member takes its place if one may vote"
	}
	return "nothing"
}

func (k EventKind) level() slog.Level {
	switch k {
	case QuorumLost:
		return slog.LevelWarn
	case Conflict, NodeFailed:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// event logs an event and queues the event for the user's function. Trouble without
// a next action gets the action of its kind.
func (n *Node) event(e Event) {
	e.Next = cmp.Or(e.Next, e.Kind.next())
	var attrs []any
	fact := func(key, value string) {
		if value != "" {
			attrs = append(attrs, key, value)
		}
	}
	fact("about", e.Member.Name)
	fact("address", e.Member.Addr)
	if e.Term != 0 {
		attrs = append(attrs, "term", e.Term)
	}
	fact("detail", e.Detail)
	fact("next", cmp.Or(e.Next, e.Kind.healthy()))
	n.self.Log.Log(context.Background(), e.Kind.level(), e.Kind.String(), attrs...)
	n.history.add(e)
	n.events.put(e)
}

// tellShortTTL says at the start what the cluster's TTL costs, if anything. Info,
// since the TTL is the operator's own choice.
func (n *Node) tellShortTTL() {
	cost := "a leader that falls silent may cost living holders their locks"
	switch {
	case n.cfg.TTL >= timing.SilenceSafeTTL:
		return
	case n.cfg.TTL < timing.CrashSafeTTL:
		cost = "a leader that crashes or falls silent may cost living holders their locks"
	}
	n.self.Log.Info("short ttl", "ttl", n.cfg.TTL, "cost", cost,
		"next", "nothing, or redeploy with a TTL of "+timing.SilenceSafeTTL.String()+" or more")
}

// afterFailure returns an operator's action on a node failed with err.
func afterFailure(err error) string {
	var bad *ConfigError
	switch {
	case errors.As(err, &bad):
		return "correct " + bad.Field + " and start this process again"
	}
	return "remove the cause, then start this process again"
}
