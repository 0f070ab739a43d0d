package cluster

import "github.com/wardmote/wardmote/internal/wire"

// votersKnown returns the voters as the present leader sees them. Ok is false if the
// leader that serves this member has not told yet: an earlier leader's word may name
// the dead as living.
func (n *Node) votersKnown() (set wire.VoterSet, ok bool) {
	set, ok = n.voterSet()
	if !ok || set.Term < n.leaderTerm.Load() {
		return wire.VoterSet{}, false
	}
	return set, true
}

// votersChanged returns a channel that is closed when votersKnown may have another
// result.
func (n *Node) votersChanged() <-chan struct{} { return n.voters.changed.Wait() }

// conflictTexts lists the conflicts that last, each with the member's name first, and
// with the next action if the conflict has one of its own.
func (n *Node) conflictTexts() (out []string) {
	for _, c := range n.conflictsSeen() {
		text := c.With.Name + ": " + c.Detail
		if c.With.Addr != "" {
			text = c.With.Name + " at " + c.With.Addr + ": " + c.Detail
		}
		if c.Next != Conflict.next() {
			text += "; " + c.Next
		}
		out = append(out, text)
	}
	return out
}
