package term

import (
	"cmp"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
)

// groupsRead answers the readers of groups. Hundreds of members follow a group of
// hundreds of callers: a whole list of callers for each member at each change would keep
// the leader and the network busy for longer than the changes take. So a reader that
// names the version of its last answer gets the callers that have changed since, and the
// state of the group is computed once per version for all readers.
//
// The memory of changes is the leader's own and no part of the table: a reader that
// comes from another leader, or comes late, gets the whole list.
type groupsRead struct {
	mu      sync.Mutex
	of      *machine.State // the table that the views are of
	views   map[string]*groupView
	callers int    // of all views
	reads   uint64 // so far
}

const (
	// keptVersions is the number of versions of a group from which a reader can go on.
	keptVersions = 64

	// maxViews and maxViewCallers bound the views. The views that were read least recently
	// are forgotten: the next reader gets the whole list.
	maxViews       = 1 << 10
	maxViewCallers = 1 << 16
)

// groupView is a group as the last reader saw it, and how it came there.
type groupView struct {
	status  machine.GroupStatus // readers share the callers: they never change
	changed []uint64            // by caller: the seen version that the caller came or changed with
	seen    []seenVersion       // ascending, at most keptVersions: the versions that readers may have
	read    uint64              // the read of groupsRead that was the last of this view
}

// seenVersion is a version that a reader was told of, and the callers that had gone by
// then, since the seen version before.
type seenVersion struct {
	version uint64
	gone    []uint32 // IDs
}

// read returns the state of a group for a reader that has the state of version since, 0
// for none. If from is since, the state has only the callers that came or changed, and
// gone the IDs of the callers that have gone; otherwise from is 0, and the state has all
// callers. The state is nil if the table does not know the group. The table must not
// change meanwhile.
func (r *groupsRead) read(m *machine.State, name string, since uint64) (st *machine.GroupStatus, from uint64, gone []uint32) {
	version := m.GroupVersion(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != m {
		r.of, r.views, r.callers = m, make(map[string]*groupView), 0
	}
	r.reads++
	v := r.views[name]
	if v == nil || v.status.Version != version {
		st, ok := m.Group(name)
		if !ok {
			r.forget(name)
			return nil, 0, nil
		}
		if v == nil {
			v = &groupView{}
			r.views[name] = v
		}
		r.callers += len(st.Callers) - len(v.status.Callers)
		v.advance(st)
	}
	v.read = r.reads
	for len(r.views) > maxViews || len(r.views) > 1 && r.callers > maxViewCallers {
		r.forgetOldest()
	}
	return v.tell(since)
}

// forget forgets the view of a group, if there is one.
func (r *groupsRead) forget(name string) {
	if v := r.views[name]; v != nil {
		r.callers -= len(v.status.Callers)
		delete(r.views, name)
	}
}

// forgetOldest forgets the view that was read least recently.
func (r *groupsRead) forgetOldest() {
	oldest, read := "", r.reads+1
	for name, v := range r.views {
		if v.read < read {
			oldest, read = name, v.read
		}
	}
	r.forget(oldest)
}

// advance makes st the state of the view.
func (v *groupView) advance(st machine.GroupStatus) {
	before := v.status.Callers
	changed := make([]uint64, len(st.Callers))
	seen := seenVersion{version: st.Version}
	i := 0
	for j := range st.Callers {
		c := &st.Callers[j]
		for ; i < len(before) && before[i].ID < c.ID; i++ {
			seen.gone = append(seen.gone, before[i].ID)
		}
		if changed[j] = st.Version; i < len(before) && before[i].ID == c.ID {
			if before[i] == *c {
				changed[j] = v.changed[i]
			}
			i++
		}
	}
	for ; i < len(before); i++ {
		seen.gone = append(seen.gone, before[i].ID)
	}
	if len(v.seen) == keptVersions {
		v.seen = slices.Delete(v.seen, 0, 1)
	}
	v.status, v.changed, v.seen = st, changed, append(v.seen, seen)
	// A reader of a version before so many departures gets the whole list in any case.
	gone := 0
	for i := len(v.seen) - 1; i > 0; i-- {
		if gone += len(v.seen[i].gone); gone >= len(st.Callers) {
			v.seen = slices.Delete(v.seen, 0, i)
			break
		}
	}
}

// tell answers a reader as read does.
func (v *groupView) tell(since uint64) (st *machine.GroupStatus, from uint64, gone []uint32) {
	state := v.status
	at, known := slices.BinarySearchFunc(v.seen, since, func(s seenVersion, version uint64) int { return cmp.Compare(s.version, version) })
	if !known {
		return &state, 0, nil
	}
	for _, s := range v.seen[at+1:] {
		gone = append(gone, s.gone...)
	}
	state.Callers = nil
	for i, version := range v.changed {
		if version > since {
			state.Callers = append(state.Callers, v.status.Callers[i])
		}
	}
	if len(state.Callers)+len(gone) >= len(v.status.Callers) {
		state.Callers = v.status.Callers // shorter: an answer is never longer than the whole list
		return &state, 0, nil
	}
	return &state, since, gone
}
