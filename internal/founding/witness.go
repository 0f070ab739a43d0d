package founding

import (
	"context"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file asks for more than a leader's word, where a member would give up a cluster
// that has granted locks, or its store. A single member can invent a cluster, name
// itself the leader, and say that a majority has confirmed it. Witnesses are the
// voters that the leader names: each says, on its own stream, that it follows this
// leader in this term. A majority of the voters named must say so, and the
// witnesses, the leader included, must be two at least, or the leader must be a
// voter that this member knows.
//
// The last condition lets the usual successor through: on disks a successor begins
// with one voter, the old voter with the newest log. A cluster of one voter that
// this member never heard of proves nothing to it, until a second voter has joined.

// Witnessed is Confirmed with witnesses for the leader. Known has the names of the
// voters of the member's own cluster.
func (r *Runner) Witnessed(ctx context.Context, at member.Process, cluster machine.ClusterID, known []string) (wire.Founding, bool) {
	a, ok := r.vouched(ctx, at, cluster)
	if !ok {
		return wire.Founding{}, false
	}
	voters, sound := witnesses(a)
	asks, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	n := 0
	for name, v := range voters {
		if name == a.Leader {
			mu.Lock()
			n++
			mu.Unlock()
			continue
		}
		asking.Go(func() {
			body := wire.Marshal(&wire.AttestRequest{Cluster: cluster, Voter: v.Raft, Leader: a.Leader, Term: a.Term})
			f, err := r.cfg.Ask.Ask(asks, member.Process{Name: name, Addr: v.Addr}, wire.Attest, body)
			if err == nil && f.Code == wire.CodeOK {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if !sound || n < majority(len(voters)) || n < 2 && !slices.Contains(known, a.Leader) {
		r.cfg.Self.Refused.Note(refused.Claim, a.Leader, "leads cluster "+clusterText(cluster)+" by its own word, without enough witnesses")
		return wire.Founding{}, false
	}
	return a.Founding, true
}

// witnesses returns the voters that a leader names, by member name. Sound is false
// if the list is none of a configuration in which the leader votes.
func witnesses(a wire.VouchAnswer) (voters map[string]wire.VoterAt, sound bool) {
	voters = make(map[string]wire.VoterAt)
	if len(a.Voters) > maxWitnesses {
		return voters, false
	}
	for _, v := range a.Voters {
		name, _, err := member.ParseRaftID(v.Raft)
		if _, twice := voters[name]; err != nil || twice || len(v.Addr) > maxAddr {
			return voters, false
		}
		voters[name] = v
	}
	_, sound = voters[a.Leader]
	return voters, sound
}

// maxWitnesses is more than the voters of any cluster, during a change included.
const maxWitnesses = 16
