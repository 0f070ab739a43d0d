package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
)

// Member is a node as the others see it.
type Member struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`        // host:port
	Boot   uint64 `json:"boot,string"` // new at each start of the member's process
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	Self   bool   `json:"self"`
}

func memberOf(p member.Process) Member { return Member{Name: p.Name, Addr: p.Addr, Boot: p.Boot} }

// Ready waits until this member may be counted on. Ready is for readiness probes,
// and for deployments that wait for a process before the next is taken:
//
//   - For the first time in this process, Ready waits until the cluster grants
//     locks, this member can ask for them, and the voters are complete: as many as
//     wanted, all of them reached and caught up, none leaving. So the next process
//     may go. The cluster wants no more voters than members that live, and replaces
//     the dead by itself; if the voters are still not complete two minutes after
//     this member could ask for locks, somebody has to act, and Ready waits for
//     them no longer: in some deployments the missing voter is only started once
//     this member is ready.
//   - From then on Ready waits only until this member can ask for locks. Troubles
//     of other members do not take a working process out of service.
//
// Ready fails when ctx ends, with an error that has Health's Reason, and that also
// is ErrNoQuorum if no leader could be reached; or when the node cannot be in the
// cluster at all. Do not tie liveness to it: a member without a leader works, and
// restarting it mends nothing, and loses its part of the log if it has no Dir.
func (n *Node) Ready(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	defer n.self.Clock.Enter()()
	id := n.founding.Cluster()
	err := n.link.Granting(ctx)
	if err == nil && n.founding.Cluster() == id {
		n.granted.id.Store(&id) // watchGranting may come to it later
	}
	if err == nil && !n.ready.Load() {
		if err = n.awaitVoters(ctx); err == nil {
			n.ready.Store(true)
		}
	}
	var e *replica.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	if err != nil && err == context.Cause(ctx) { // else the error has a reason
		_, _, led := n.link.Leader()
		if reason, _ := n.situation(led).explain(); reason != "" {
			err = fmt.Errorf("cluster: not ready: %s: %w", reason, err)
		}
	}
	return err
}

// awaitVoters waits until the voters are complete, for timing.ReadyPatience at most,
// counted from the first call of any Ready: a probe calls again and again.
func (n *Node) awaitVoters(ctx context.Context) error {
	n.readySince.CompareAndSwap(nil, new(time.Now()))
	patience := time.NewTimer(time.Until(n.readySince.Load().Add(timing.ReadyPatience)))
	defer patience.Stop()
	for {
		changed := n.votersChanged()
		set, ok := n.votersKnown()
		rest := n.untilFresh(set)
		if ok && whole(set) && rest <= 0 {
			return nil
		}
		var fresh <-chan time.Time
		if rest > 0 {
			fresh = time.After(rest)
		}
		select {
		case <-changed:
		case <-fresh:
		case <-patience.C:
			return nil
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		case <-ctx.Done():
			reason, _ := n.situation(true).explain()
			return fmt.Errorf("cluster: the voters are not complete: %s: %w", cmp.Or(reason, "the leader has not told them yet"), context.Cause(ctx))
		}
	}
}

// Members lists the members believed alive, this member included, by name. The list is gossip's view: a hint, some seconds old. Each member
// advertises its own vote; Voter comes from the leader's last word, since a member
// behind a partition may not know of the last change.
func (n *Node) Members() []Member {
	leader, addr, attached := n.link.Leader()
	set, told := n.voterSet()
	var out []Member
	alive := n.gossip.Alive()
	for i, s := range alive {
		if i+1 < len(alive) && alive[i+1].Name == s.Name {
			continue // an earlier process of that name, not yet taken for dead
		}
		m := memberOf(s.Process)
		m.Voter = s.Meta.Voter
		if told {
			m.Voter = votes(set, member.RaftID(s.Name, s.Meta.Generation))
		}
		m.Leader = attached && s.Name == leader && s.Addr == addr
		m.Self = n.self.Is(s.Process)
		out = append(out, m)
	}
	return out
}

// Leader returns the leading member, as far as this member knows: the leader of
// the last answer.
func (n *Node) Leader() (Member, bool) {
	members := n.Members()
	if i := slices.IndexFunc(members, func(m Member) bool { return m.Leader }); i >= 0 {
		return members[i], true
	}
	name, addr, ok := n.link.Leader()
	return Member{Name: name, Addr: addr, Leader: ok}, ok
}

// Health is the state of a member and its cluster at a moment.
type Health struct {
	// Quorum: a leader answered, confirmed by a majority of the voters.
	Quorum bool `json:"quorum"`

	// Granting: Quorum, and the leader grants locks. A new cluster has a Quorum
	// for one TTL before it grants.
	Granting bool `json:"granting"`

	Cluster string `json:"cluster"` // the cluster's ID, in hex; "" while this member is in none
	Leader  string `json:"leader"`  // the leader's name; "" if none is known
	Members int    `json:"members"` // the living members, by name, as gossip sees them
	Role    string `json:"role"`    // this member's: "leader", "voter" or "thin"
	Voter   bool   `json:"voter"`   // this member votes: Role is not "thin"

	// Voters counts the voters.
	Voters VoterHealth `json:"voters"`

	// SafeToTakeNext: the voters are complete and bear a failure, so any process
	// may be stopped or killed now, and the cluster goes on. Never true while one
	// member alone votes, as in a cluster of two members: stop such a member by
	// Leave. Advice for the moment: ask again before each process.
	SafeToTakeNext bool `json:"safeToTakeNext"`

	// Conflicts lists the members in conflict with this member: two clusters of the
	// same name, with both IDs; two processes of the same name; contradicting
	// configurations.
	Conflicts []string `json:"conflicts,omitempty"`

	// Refused lists the kinds of connections and messages that this member has
	// refused, by kind, with the latest of each.
	Refused []Refusal `json:"refused,omitempty"`

	// Reason describes the trouble in words, with names, addresses and numbers, and
	// Next the action against the trouble. Both are "" if all is well, and neither
	// is "" alone.
	Reason string `json:"reason,omitempty"`
	Next   string `json:"next,omitempty"`

	Err error `json:"-"` // why Quorum is false, for errors.Is; Reason has the words
}

// VoterHealth counts the voters, as the leader sees them. Without a leader Wanted is
// as told last, Present counts the voters that this member has heard since the leader was
// lost, and the others are 0.
type VoterHealth struct {
	Wanted    int `json:"wanted"`    // as configured, but no more than members live for
	Present   int `json:"present"`   // their processes are not known to have ended
	Reachable int `json:"reachable"` // of Present: the leader reaches them
	CaughtUp  int `json:"caughtUp"`  // of Reachable: they have the log
	Bears     int `json:"bears"`     // so many more may fail now, one after the other or together, without loss of the quorum
}

// Health asks the leader for a confirmation of its leadership, and never fails:
// trouble stands in the answer. The call blocks until the leader has answered or
// ctx has ended, and for two seconds at most.
//
// Health is for decisions and for the eyes of operators. A readiness probe calls
// Ready. A liveness probe calls neither: without a leader a restart mends nothing.
func (n *Node) Health(ctx context.Context) Health {
	if ctx == nil {
		return Health{Err: errNilContext, Role: "thin", Reason: errNilContext.Error(), Next: "call Health with a context"}
	}
	defer n.self.Clock.Enter()()
	ctx, cancel := context.WithTimeout(ctx, timing.HealthPatience)
	defer cancel()
	// Any key serves: a reading needs the quorum.
	_, err := n.link.Read(ctx, replica.Query{Key: "health"})
	h := n.healthOf(err == nil)
	h.Err = err
	return h
}

// healthOf returns the Health by this member's own knowledge. quorum says whether a leader
// answers.
func (n *Node) healthOf(quorum bool) Health {
	h := Health{Quorum: quorum, Members: len(n.Members()), Role: n.role()}
	h.Leader, _, _ = n.link.Leader()
	if v := n.founding.Value(); v != nil {
		h.Cluster = hex.EncodeToString(v.Cluster[:])
	}
	h.Voter = h.Role != "thin"
	h.Granting = h.Quorum && n.granted.Load()
	s := n.situation(h.Quorum)
	h.Conflicts = s.clashes
	h.Refused = n.refusals()
	h.Reason, h.Next = s.explain()
	if !h.Quorum {
		set, _ := n.voterSet()
		h.Voters.Wanted = max(set.Wanted, len(s.voters))
		for _, v := range s.voters {
			if v.alive {
				h.Voters.Present++
			}
		}
		return h
	}
	h.Voters = countVoters(s.set).VoterHealth
	h.SafeToTakeNext = h.Granting && whole(s.set) && h.Voters.Bears > 0
	return h
}
