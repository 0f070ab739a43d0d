package voters

import (
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// reconcileBound keeps the bound of sessions' TTLs at the largest TTL of any living
// member: the bound rises with the first attached member of a longer TTL, and falls
// with the last member, attached or seen by gossip alone. So false gossip can delay
// a fall, and no more. Before the end of the founding wait the bound does not fall.
func (r *Reconciler) reconcileBound() {
	var most, seen uint64
	for _, m := range r.Members() {
		if !m.Alive {
			continue
		}
		seen = max(seen, validTTL(m.Meta))
		if own, ok := r.own(m); ok {
			most = max(most, validTTL(own))
		}
	}
	bound := r.Term.Bound()
	if most < bound {
		most = min(max(most, seen), bound)
	}
	if most == 0 || most == bound || !r.Term.Lifted() && most < bound {
		return
	}
	r.Term.Decide(machine.Bound{Term: r.Term.Number(), TTL: most}, func(o machine.Outcome, c wire.Code) {
		if c != wire.CodeOK || o.Code != machine.OK {
			return
		}
		r.Self.Log.Info("bound of session TTLs changed", "ttl", time.Duration(most)*time.Millisecond, "next", "nothing")
		r.Term.AnnounceBound(most)
	})
}

// validTTL returns the TTL of a description, or 0 for a TTL that no member can have.
func validTTL(m member.Metadata) uint64 {
	if m.TTL < machine.MinTTL || m.TTL > machine.MaxTTL {
		return 0
	}
	return m.TTL
}

// own returns a process's own description, which no other process can give: the
// process is this one, or attached to this leader.
func (r *Reconciler) own(m member.Sighting) (meta member.Metadata, ok bool) {
	if r.Self.Is(m.Process) {
		return m.Meta, true
	}
	return r.Term.Described(m.Name, m.Boot)
}

// While a cluster is being upgraded, members read different formats of log entries.
// Each member describes the newest format that it reads. Once all servers read a later format, the leader raises the table
// to the later format by an entry, so that every voter's table changes at the same
// point of the log. From then on a member becomes a voter only if the member reads
// the later format. Before, commands of the later format are refused: a voter of an
// earlier format would ignore such a command, and its table would part from the
// other tables in silence. A voter put back to an earlier version, with a table
// raised beyond its formats, votes no more.

// Readable returns the newest format read by every server of the configuration,
// servers still catching up included. Newest is the newest format of this program.
func Readable(servers []member.Server, sightings []member.Sighting, newest int) int {
	if len(servers) == 0 {
		return member.LeastFormat
	}
	least := newest
	for _, s := range servers {
		least = min(least, member.FormatOf(sightings, s.ID))
	}
	return least
}

// reconcileFormat raises the table's format to Readable.
func (r *Reconciler) reconcileFormat() {
	attached := r.Members()
	for i, m := range attached {
		attached[i].Meta, _ = r.own(m) // an unknown description has the least format
		attached[i].Meta.Generation = m.Meta.Generation
	}
	f := Readable(r.Raft.Servers(), attached, r.Format)
	if f <= r.Term.Format() {
		return
	}
	r.raising.Store(int64(f)) // required from now on, not only from the commit on
	r.Term.Decide(machine.Raise{Term: r.Term.Number(), Format: uint64(f)}, func(o machine.Outcome, c wire.Code) {
		if c == wire.CodeOK && o.Code == machine.OK {
			r.Self.Log.Info("table format raised", "format", f, "next", "nothing: members of earlier versions can join no more")
		}
	})
}

// required returns the least format of new voters and of non-voters:
// the table's format, or the format proposed for the table.
func (r *Reconciler) required() int { return max(r.Term.Format(), int(r.raising.Load())) }
