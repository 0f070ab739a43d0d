package voters

import (
	"reflect"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// tell announces the state of the voters to every member, if the state has changed.
func (r *Reconciler) tell(servers []server, candidates []candidate, g goal, sightings []member.Sighting) {
	t := count(servers)
	set := wire.VoterSet{
		Term:  r.Term.Number(),
		Index: r.Term.ConfigIndex(),
		// A gone voter still has its place; a leaving one has not. So the set is
		// incomplete after a loss, and complete after a departure.
		Wanted: max(t.target(g, len(candidates)), min(g.want, len(t.healthy)+len(t.gone))),
	}
	for _, s := range servers {
		if !s.voter {
			continue
		}
		v := wire.VoterState{
			Raft: s.id, Zone: s.zone, Present: s.self || !s.proved && r.present(s.id, sightings), Reached: s.up, Current: s.up && s.ready, Leaving: s.leaving,
		}
		if p, err := r.Locate(s.id); err == nil {
			v.Addr = p.Addr
		}
		set.Voters = append(set.Voters, v)
	}
	if !reflect.DeepEqual(set, r.told) {
		r.told = set
		r.Term.AnnounceVoters(set)
	}
}

// present reports whether no proof says that the process behind a raft ID has
// ended. An ended process with a Dir may come back, and is absent until then.
func (r *Reconciler) present(id string, sightings []member.Sighting) bool {
	p, err := r.Locate(id)
	if err != nil {
		return true // never seen since this process started
	}
	name, generation, _ := member.ParseRaftID(id)
	for _, m := range sightings {
		if m.Name == name && m.Meta.Generation == generation && m.Alive && !r.Ended(m.Name, m.Boot) {
			return true
		}
	}
	return !r.Ended(p.Name, p.Boot)
}
