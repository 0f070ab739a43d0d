package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// RecoverOptions is an operator's word about the members of a dead cluster.
type RecoverOptions struct {
	// Gone names the members lost for good: the process has ended and, if there was
	// a Dir, the disk is lost or will not be used again. A process started anew
	// under such a name is no concern, and joins the successor. So name a voter, too,
	// that has been started anew without the voter role. A wrong name breaks
	// the guarantees of locks: a living member called gone may grant beside the
	// successor. Wipe disks named as gone: if a majority of such disks comes back
	// while no member of the successor is in reach, the old cluster grants again.
	Gone []string

	_ struct{}
}

// Recover founds a successor of a cluster that has lost the majority of its voters
// for good. Without Recover, such a cluster grants nothing until enough voters are
// back; no member decides by itself that voters are gone, since a partition looks
// the same. Call Recover once, on any member left. Two operators on two members,
// each calling the other gone, would make two successors.
//
// The successor consists of all members seen alive, except the members named in
// Gone, and except processes that exist in gossip's words alone: such a process is
// asked for five seconds, and then left out with a line in the log, unless it is a
// voter or has shown itself to this member before. A member without the
// voter role that does not take part is left out after fifteen seconds: end the work
// under its locks. Each of the others takes part:
//
//   - every voter among them first promises, durably with a Dir, never to vote in
//     the old cluster again. A voter refuses while a leader answers or while a
//     majority of the voters can be reached: such a cluster is not dead;
//   - locks of the old cluster that processes of the group hold end, with the reason
//     locks.ClusterReplaced, before the successor is founded;
//   - the successor grants nothing for the largest TTL ever told to any of them, so
//     holders outside the group have lost their trust by then;
//   - its tokens are above every token seen by any of them, and above the answer of each
//     one's Recovery.TokenFloor, for which Recover waits.
//
// No process ends. Clients open new sessions by themselves. The successor begins with the
// voters that are left, with a Dir with one: until others have joined it bears fewer
// failures than before, or none. A line in the log says so, and Health.Bears counts.
//
// In memory the successor begins with an empty table: values and the memory of Once
// are lost with the old cluster's sessions. With a Dir the successor goes on from
// the table of the voter with the newest log. That log may lack entries that the old cluster
// committed on the lost disks: a Cell may go back to an earlier value, and a Once
// that was done may be done again. The old stores are kept in Dir as raft.aside-*,
// stamped so that they never vote again; the newest two stay.
//
// Recover trades the old cluster's right to come back for a cluster that grants
// now: after Recover has begun, a voter that retired stays retired, even if Recover
// fails: in memory until a leader of the old cluster answers after all, with a Dir
// until the voter joins a successor.
//
// Recover blocks until this member is in the successor, or fails when ctx ends: the
// error tells the missing part. A member that has not seen the cluster's tokens refuses a
// successor whose first token is more than a day ahead of its clock, and the error says
// what to do. Recover fails at once on a member whose own store has failed or does not
// answer: call it on another member. Recover may be repeated, with more names or after
// the missing members are back. Recover fails at once if the cluster answers, if
// this member is in no cluster, if a voter is neither seen nor named (the error
// lists the voter), if a voter that is named answers under its vote, and with a *ConfigError for a name that is malformed or this
// member's own. Recover fails with a *DeniedError if Security.Authorize refuses, here
// or on a member that is asked to take part: that member has promised nothing, others
// may have. When the node stops, Recover fails with ErrStopped.
func (n *Node) Recover(ctx context.Context, o RecoverOptions) error {
	if ctx == nil {
		return errNilContext
	}
	defer n.self.Clock.Enter()()
	for _, name := range o.Gone {
		if err := member.CheckName(name); err != nil {
			return &ConfigError{"RecoverOptions.Gone", fmt.Sprintf("%q: %v", name, err)}
		}
		if name == n.self.Name {
			return &ConfigError{"RecoverOptions.Gone", fmt.Sprintf("%q is this member itself", name)}
		}
	}
	if reason, denied := n.denies(n.self.Process(), VerbRecover, ""); denied {
		return &DeniedError{Verb: VerbRecover, Reason: reason}
	}
	if n.founding.Value() == nil {
		return errors.New("cluster: not recovered: this member is in no cluster")
	}
	if why := n.diskUnfit(); why != "" {
		return fmt.Errorf("cluster: not recovered: %s", why)
	}
	rec := n.record.Get()
	if !rec.RetiredHere() {
		if why := n.comeback(ctx); why != "" {
			return fmt.Errorf("cluster: not recovered: %s", why)
		}
	}
	ids := n.oldVoterIDs()
	if set, told := n.voterSet(); told && n.seat.Current() == nil {
		for _, v := range set.Voters { // a member without a vote knows the voters by the leader's word
			ids = append(slices.Clip(ids), v.Raft)
		}
	}
	var voters, missing, named []string
	for _, id := range ids {
		name, _, err := member.ParseRaftID(id)
		if err != nil {
			continue
		}
		isGone := slices.Contains(o.Gone, name)
		if isGone {
			named = append(named, id) // a name may have had several
		}
		if !slices.Contains(voters, name) {
			voters = append(voters, name)
			if !isGone && !n.seesAlive(name) {
				missing = append(missing, name)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cluster: not recovered: voters that are neither seen nor named as gone: %s", strings.Join(missing, ", "))
	}
	if living := n.reached(ctx, named); len(living) > 0 {
		return fmt.Errorf("cluster: not recovered: %s is named as gone, and votes in the cluster: stop its process first, or do not name it", living[0])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.ctx, func() { cancel(context.Cause(n.ctx)) })() // nothing founds after the node
	if err := n.founding.Recover(ctx, o.Gone, voters); err != nil {
		return recoverError(err)
	}
	n.tellRecovered(len(voters), o.Gone)
	return nil
}

// diskUnfit returns why this member's own disk keeps it from recovering a cluster, or "".
// A store that has failed tells no table, no log and no voters: a successor founded from
// here would rest on less than another survivor knows, and the promise to vote no more
// might not be written.
func (n *Node) diskUnfit() string {
	const next = ": stop this process, call Recover on another member and name this one as gone, or repair the disk first"
	r := n.seat.Current()
	switch {
	case n.mute.Load():
		return "this member's own store has failed, see the event NodeFailed" + next
	case r != nil && r.Stalled() > timing.StoreStalled:
		return fmt.Sprintf("this member's own disk has not answered for %v%s", r.Stalled().Round(time.Second), next)
	}
	return ""
}

// tellRecovered logs what an operator must know next: the successor may bear fewer
// failures than the cluster before.
func (n *Node) tellRecovered(before int, gone []string) {
	v := n.founding.Value()
	if v == nil {
		return
	}
	bears, bore, voters := (len(v.Voters)-1)/2, (before-1)/2, strings.Join(v.Voters, ", ")
	if bears < bore {
		n.self.Log.Warn("the cluster is recovered, and fewer failures can be borne than before", "cluster", clusterText(v.Cluster),
			"voters", voters, "gone", strings.Join(gone, ", "), "bears", bears, "before", bore,
			"next", "keep these voters running, start the missing members, and wait until Health says that more may fail")
		return
	}
	n.self.Log.Info("the cluster is recovered", "cluster", clusterText(v.Cluster), "voters", voters,
		"gone", strings.Join(gone, ", "), "bears", bears, "next", "nothing")
}

// oldVoters returns the names of the voters of this member's cluster: see oldVoterIDs.
func (n *Node) oldVoters() (names []string) {
	for _, id := range n.oldVoterIDs() {
		if name, _, err := member.ParseRaftID(id); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// oldVoterIDs returns the raft IDs of the voters of this member's cluster, as far as this
// member knows: of its raft's latest configuration, also after its own retirement, or else
// of the founding.
func (n *Node) oldVoterIDs() []string {
	rec := n.record.Get()
	if r := n.seat.Current(); r != nil {
		return r.Voters()
	} else if rec.RetiredHere() && len(rec.Retired.Voters) > 0 {
		return rec.Retired.Voters
	}
	return n.founding.Value().Voters
}

// reached returns the names of the voters that answer as these very raft IDs. A later
// process of the name, with another raft ID, has no vote in the cluster.
func (n *Node) reached(ctx context.Context, ids []string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, timing.RetireLook)
	defer cancel()
	var asked sync.WaitGroup
	var mu sync.Mutex
	for _, id := range ids {
		asked.Go(func() {
			if name, _, err := member.ParseRaftID(id); err == nil && n.reaches(ctx, id) {
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
			}
		})
	}
	asked.Wait()
	slices.Sort(names)
	return names
}

// seesAlive reports whether a process of the name, or this member, lives.
func (n *Node) seesAlive(name string) bool {
	return slices.ContainsFunc(n.gossip.Of(name), func(s member.Sighting) bool { return s.Alive })
}
