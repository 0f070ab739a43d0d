package term

import "testing"

// The planner reads the keys of a group, and decides then whether it waits for a change
// of them. A change in between is not lost.
func TestAChangeBeforeTheWaitForItIsNotLost(t *testing.T) {
	p := newPlanner(nil)
	p.noteLocked("g")
	g := p.groups["g"]
	g.all = false
	clear(p.dirty) // the planner has read the group
	if p.keyChanged("g/1") || len(p.dirty) > 0 {
		t.Fatal("nobody waits for the key yet")
	}
	p.setWaits(g, true)
	if _, dirty := p.dirty[g]; !dirty || len(p.wake) == 0 {
		t.Error("the planner sleeps")
	}
}

// The changes of a group that the planner does not wait for take bounded memory.
func TestChangesOfKeysNobodyWaitsForAreBounded(t *testing.T) {
	p := newPlanner(nil)
	p.noteLocked("g")
	g := p.groups["g"]
	g.all = false
	for range 100 * keysAtOnce {
		p.keyChanged("g/1")
	}
	if !g.all || len(g.changed) > keysAtOnce {
		t.Errorf("%d changes, all %t", len(g.changed), g.all)
	}
}
