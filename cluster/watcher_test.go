package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// A member that calls others dead and living writes a bounded number of lines and events,
// and the events come back.
func TestChangesOfMembersAreToldWithinABound(t *testing.T) {
	n := &Node{events: newHookQueue(func(context.Context, Event) {})}
	n.self.Log = slog.New(slog.DiscardHandler)
	n.self.Refused = refused.New(n.self.Log)
	told := 0
	w := gossipWatcher{event: func(e Event) { n.memberEvent(e); told++ }}
	began := time.Now()
	for range 4 * maxNews {
		w.Left(member.Sighting{Process: member.Process{Name: "m", Boot: 1}}, false)
	}
	passed := uint64(told) - n.self.Refused.Counts()[refused.Flood]
	if most := maxNews + uint64(time.Since(began)/timing.GossipNews) + 1; passed < maxNews || passed > most {
		t.Errorf("%d changes were told, want %d to %d", passed, maxNews, most)
	}
	before := n.self.Refused.Counts()[refused.Flood]
	for range 4 * maxNews { // and changes of voters, as a leader tells
		n.voterEvent(Event{Kind: VoterAdded, Member: Member{Name: "m"}})
	}
	if kept := n.self.Refused.Counts()[refused.Flood] - before; kept < 2*maxNews || kept > 3*maxNews {
		t.Errorf("%d of %d changes of voters were not told", kept, 4*maxNews)
	}
	var m memberNews
	for range maxNews {
		if !m.pass(began) {
			t.Fatal("a change below the bound is not told")
		}
	}
	if m.pass(began) || !m.pass(began.Add(timing.GossipNews)) || m.pass(began.Add(timing.GossipNews)) {
		t.Error("the bound does not follow the clock")
	}
}
