package voters

import (
	"context"
	"maps"
	"slices"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Depart has the voter of a member replaced, once the voter itself has agreed: see
// farewell. Done is called once, on any goroutine:
//
//   - with CodeOK when the configuration does not list the member's raft ID, or
//     when a newer process of the name runs with this store or a later one, because
//     the asking process then has no part in the cluster;
//   - with CodeNo when the voter says that it stays;
//   - with CodeNotLeader after Stop, or when the member asks again.
//
// Depart does not block.
func (r *Reconciler) Depart(name string, boot uint64, done func(wire.Code)) {
	var id string
	var generation uint64
	for _, s := range r.Raft.Servers() {
		if n, g, _ := member.ParseRaftID(s.ID); n == name {
			id, generation = s.ID, g
		}
	}
	if id != "" { // mostly no voter asks, and a look at all members is long
		for _, m := range r.Members() {
			if m.Name != name || m.Boot <= boot || !m.Alive {
				continue
			}
			// A newer process that describes no store may be a stranger under a shared
			// certificate. Beside it the voter itself is asked, as always.
			if own, ok := r.own(m); ok && own.Generation >= generation {
				id = ""
			}
		}
	}
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		done(wire.CodeNotLeader)
		return
	}
	if id == "" {
		r.mu.Unlock()
		done(wire.CodeOK)
		return
	}
	earlier := r.departs[id]
	r.departs[id] = done
	r.mu.Unlock()
	if earlier != nil {
		earlier(wire.CodeNotLeader)
	}
	r.departing.Wake()
}

// A farewell is the question to a server whether it leaves. A request to depart, and a
// description that says so, come on a stream of the member's name, and every holder of
// a shared secret can open one. So a voter is asked itself, where the leader's raft
// reaches it, before it counts as leaving. A later process of a voter with a Dir is
// asked anew: the earlier one may have asked and ended, and the later one stays.
type farewell struct {
	asking bool
	agreed member.Process // zero: nobody has
}

// unlessAgreed clears the mark of leaving from each server that has not agreed, and asks
// the server once more. The leader knows by itself whether it leaves.
func (r *Reconciler) unlessAgreed(ctx context.Context, servers []server) {
	claimed := make(map[string]bool)
	for i := range servers {
		if s := &servers[i]; s.leaving && !s.self {
			claimed[s.id] = true
			s.leaving = r.agrees(ctx, s.id)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.farewells, func(id string, f *farewell) bool { return !f.asking && !claimed[id] })
}

// agrees reports whether a server has said itself that it leaves, and asks it
// otherwise.
func (r *Reconciler) agrees(ctx context.Context, id string) bool {
	p, err := r.Locate(id)
	if err != nil {
		return false
	}
	r.mu.Lock()
	f := r.farewells[id]
	if f == nil {
		f = new(farewell)
		r.farewells[id] = f
	}
	agreed := f.agreed == p
	if agreed || f.asking {
		r.mu.Unlock()
		return agreed
	}
	f.asking = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timing.ProgressAnswer)
	r.Peers.Begin(ctx, p, wire.Progress, nil, func(a wire.Frame, err error) {
		cancel()
		var its wire.ProgressAnswer
		if err == nil && a.Code == wire.CodeOK && wire.Unmarshal(a.Body, &its) == nil && its.Raft == id {
			r.answered(id, f, p, its.Leaves)
		}
		r.mu.Lock()
		f.asking = false
		r.mu.Unlock()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return f.agreed == p
}

// answered takes the answer of the process behind a raft ID. Without an answer the
// server is asked again at the next look.
func (r *Reconciler) answered(id string, f *farewell, p member.Process, leaves bool) {
	r.mu.Lock()
	var done func(wire.Code)
	if leaves {
		f.agreed = p
		r.noteLeaver(member.Process{Name: p.Name, Boot: p.Boot})
	} else {
		done = r.departs[id]
		delete(r.departs, id)
	}
	r.mu.Unlock()
	if leaves {
		r.departing.Wake()
		return
	}
	r.Self.Refused.Note(refused.Claim, p.Name, "a voter is said to leave, and says itself that it stays")
	if done != nil {
		done(wire.CodeNo)
	}
}

// maxLeavers bounds the processes that are remembered for having asked to leave. Each was a
// process of a voter's name, so there are a few.
const maxLeavers = 1024

// noteLeaver remembers a process that has asked. With too many, another one is forgotten: a
// forgotten process may be made a voter once more, unless it describes itself as leaving.
// The caller holds r.mu.
func (r *Reconciler) noteLeaver(p member.Process) {
	for other := range r.leavers {
		if len(r.leavers) < maxLeavers {
			break
		}
		delete(r.leavers, other)
	}
	r.leavers[p] = true
}

// forgetLeavers forgets the processes that nobody knows any more: each deploy replaces all
// processes, and a term may last for years.
func (r *Reconciler) forgetLeavers(sightings []member.Sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leavers) == 0 {
		return
	}
	known := make(map[member.Process]bool)
	for _, m := range sightings {
		if m.Alive && !r.Ended(m.Name, m.Boot) {
			known[member.Process{Name: m.Name, Boot: m.Boot}] = true
		}
	}
	maps.DeleteFunc(r.leavers, func(p member.Process, _ bool) bool { return !known[p] })
}

// leaves reports whether a process has asked to leave in this term. Its gossip may
// not say so yet.
func (r *Reconciler) leaves(name string, boot uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leavers[member.Process{Name: name, Boot: boot}]
}

// departingIDs returns the raft IDs of all members waiting to be replaced.
func (r *Reconciler) departingIDs() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]bool, len(r.departs))
	for id := range r.departs {
		ids[id] = true
	}
	return ids
}

// answerDeparted answers every departing member without a line in the
// configuration.
func (r *Reconciler) answerDeparted(servers []server) {
	var answers []func(wire.Code)
	r.mu.Lock()
	for id, done := range r.departs {
		if !slices.ContainsFunc(servers, func(s server) bool { return s.id == id }) {
			answers = append(answers, done)
			delete(r.departs, id)
		}
	}
	r.mu.Unlock()
	for _, done := range answers {
		done(wire.CodeOK)
	}
}

// Stop answers every waiting and every later Depart with CodeNotLeader. Stop does
// not wait for Run: the end of Run's context ends Run.
func (r *Reconciler) Stop() {
	r.mu.Lock()
	r.stopped = true
	departs := r.departs
	r.departs = nil
	r.mu.Unlock()
	for _, done := range departs {
		done(wire.CodeNotLeader)
	}
}

// InConfig answers whether the configuration lists a raft ID: CodeOK for yes,
// CodeNo for no, and CodeNotLeader if this node may not lead any more or is
// changing the configuration. InConfig does not block.
//
// The configuration is read before the round, which confirms that no other leader had
// begun a change by then. Read after the round, it may have the change of another leader,
// which is undone if that leader ends.
func (r *Reconciler) InConfig(raftID string, done func(wire.Code)) {
	changing := r.changing.Load()
	listed := slices.ContainsFunc(r.Raft.Servers(), func(s member.Server) bool { return s.ID == raftID })
	changing = changing || r.changing.Load() // a change may have begun before the look
	r.Term.Confirm(func(ok bool) {
		switch {
		case !ok || changing || r.changing.Load():
			// A change may be undone until the commit.
			done(wire.CodeNotLeader)
		case listed:
			done(wire.CodeOK)
		default:
			done(wire.CodeNo)
		}
	})
}
