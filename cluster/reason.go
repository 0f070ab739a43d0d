package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// situation is everything that the texts for operators depend on.
type situation struct {
	ended     error  // the node's end, if it has ended
	founded   bool   // this member is in a cluster
	progress  string // of founding; in a cluster, of its successor
	led       bool   // a leader answers
	granting  bool
	wait      time.Duration // of a new cluster, until the first grant
	waitKnown bool          // wait is a voter's word
	held      string        // the process that holds the first grant back, "" if none
	durable   bool          // this member has a Dir
	voters    []voterSight  // without a leader: the voters as this member knows them
	lost      time.Time     // without a leader: since when; zero: since the start
	set       wire.VoterSet // as the leader sees them
	setKnown  bool
	clashes   []string // conflicts that last

	proof          string   // why the others refuse the own certificate
	unproved       string   // without a leader: the members that refuse this member's proof
	keys, keysNext string   // members that know different secrets, and the next action
	estranged      []string // members that knew, when last heard of, none of this member's secrets

	hopeless bool   // without a leader: the cluster cannot come back by itself
	outlook  string // without a leader: the next action, "" if nobody has judged
}

// voterSight is a voter as this member sees it without a leader.
//
// Gossip's word that a process lives is some seconds old, and so is the word of the leader
// of before: neither says that a voter is there now. A member without a leader asks every
// voter that it knows, at once and again and again. So a voter that has not answered since
// the leader was lost is missing, whatever gossip says.
type voterSight struct {
	name, addr string
	alive      bool      // heard since the leader was lost, or this member itself
	maybe      bool      // not heard since, and too early to say
	gone       time.Time // since when not; zero if it was never seen
}

func (v voterSight) String() string {
	text := v.name
	if v.addr != "" {
		text += " at " + v.addr
	}
	if !v.gone.IsZero() {
		// A time, not a duration: the text must not change while nothing does.
		text += " since " + v.gone.Format(time.TimeOnly)
	}
	return text
}

// explain returns the worst trouble, and the action against it. Both are empty if
// all is well; neither is empty alone. The text names facts: members, addresses and
// numbers, as far as this member knows them.
func (s *situation) explain() (reason, next string) {
	switch {
	case s.ended != nil && errors.Is(s.ended, ErrStopped):
		return "this node has stopped", "start this process again if it should be in the cluster"
	case s.ended != nil:
		return "this node has failed: " + s.ended.Error(), afterFailure(s.ended)
	case s.proof != "":
		return s.proof, "give this member a valid certificate: no restart is needed if Security.TLS has GetCertificate"
	case !s.founded:
		if strings.Contains(s.progress, founding.Stranded) {
			return s.progress, "restart the members of that cluster, or call Node.Recover on one of them; Health there says which way"
		}
		if strings.Contains(s.progress, founding.NoFloor) {
			return s.progress, letFloorAnswer
		}
		return s.progress, "start the missing members, or correct Join, Founders, InitialSize, Cluster and Security of those that run"
	case !s.led:
		return s.explainSilence()
	case len(s.clashes) > 0:
		reason = "conflict: " + s.clashes[0]
		if more := len(s.clashes) - 1; more > 0 {
			reason += fmt.Sprintf("; and %d more", more)
		}
		return reason, "see Conflicts: one name for each member, and one Join that leads every member to every other"
	case !s.granting && s.held != "":
		return "the cluster grants nothing yet: " + s.held + " says that it is in another cluster of this name",
			"see Health of that process, and wait until one of the two joins the other; if nothing changes, stop the process"
	case !s.granting:
		return waitText(s.wait, s.waitKnown), "wait"
	case s.setKnown: // else the leader tells within a moment
		if reason, next := s.explainVoters(); reason != "" {
			return reason, next
		}
	}
	return s.keys, s.keysNext
}

// letFloorAnswer is the action while a founding waits for Recovery.TokenFloor.
const letFloorAnswer = "let the resource behind Recovery.TokenFloor answer, on each member that is named, or correct what the text says"

// explainSilence is for a member of a cluster without a leader.
func (s *situation) explainSilence() (reason, next string) {
	seen, maybe := 0, 0
	var missing []string
	for _, v := range s.voters {
		switch {
		case v.alive:
			seen++
			continue
		case v.maybe:
			maybe++
		}
		missing = append(missing, v.String())
	}
	reason = fmt.Sprintf("no leader answers: %d of %d voters seen", seen, len(s.voters))
	if !s.lost.IsZero() {
		reason += " since " + s.lost.Format(time.TimeOnly)
	}
	switch {
	case len(s.voters) == 0:
		reason = "no leader answers, and no voter is known"
		next = "correct Join, so that it leads to members of this cluster"
	case seen+maybe > len(s.voters)/2:
		next = "wait some seconds for an election; if it lasts, let the voters reach each other on their ports, TCP and UDP"
	case s.durable:
		next = "start the missing voters again, with their Dirs, or restore the network to them"
	default:
		next = "restore the network to the missing voters; if their processes have ended, restart every remaining member: the last restart founds a new cluster"
	}
	if len(missing) > 0 {
		reason += "; missing " + strings.Join(missing, ", ")
	}
	if s.progress != "" {
		reason += "; " + s.progress
	}
	if s.unproved != "" {
		// The members that refuse are alive: to restart them or to name them as gone
		// would be wrong, however little of them is seen.
		return reason + "; " + s.unproved, "give this member the same Security and Cluster as the members that refuse it; they live, so do not call Recover"
	}
	if strings.Contains(s.progress, founding.NoFloor) {
		next, s.outlook = letFloorAnswer, ""
	}
	if s.hopeless {
		reason = "this cluster cannot come back by itself: " + reason
	}
	return reason, cmp.Or(s.outlook, next)
}

// explainVoters is for a cluster that grants: is its set of voters whole?
func (s *situation) explainVoters() (reason, next string) {
	if whole(s.set) {
		return "", ""
	}
	h := countVoters(s.set)
	var parts []string
	waits := true   // the cluster mends the rest by itself
	missed := false // a rotation of the secrets
	for _, v := range s.set.Voters {
		name, _, _ := member.ParseRaftID(v.Raft)
		at := cmp.Or(name, v.Raft)
		if v.Addr != "" {
			at += " at " + v.Addr
		}
		switch {
		case v.Leaving:
			parts = append(parts, at+" leaves")
		case !v.Present:
			parts = append(parts, at+" has ended")
			waits = waits && !s.durable
		case !v.Reached:
			waits = false
			if slices.Contains(s.estranged, name) {
				parts = append(parts, at+" is not reached by the leader and knew none of the present secrets when last heard of")
				missed = true
				continue
			}
			parts = append(parts, at+" is not reached by the leader")
		case !v.Current:
			parts = append(parts, at+" catches up")
		}
	}
	if n := s.set.Wanted - len(s.set.Voters); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more wanted", n))
	}
	reason = fmt.Sprintf("%d of %d wanted voters work, and %d more may fail: %s", h.working, s.set.Wanted, h.Bears, strings.Join(parts, ", "))
	next = "take no other process yet"
	switch {
	case missed:
		// It lives, and restarting it, or the network, would change nothing.
		return reason, next + ": give the member that missed the rotation a present secret, in Security.Secrets or by SetSecrets"
	case waits:
		return reason, next + ": wait until the voters are complete"
	}
	return reason, next + ": start the missing one again, or restore the network to it"
}

// whole reports whether the voters are as many as wanted, and all of them work.
func whole(set wire.VoterSet) bool {
	h := countVoters(set)
	return set.Wanted > 0 && h.working >= set.Wanted && h.working == len(set.Voters)
}

// votersCounted is a VoterHealth, and the number of voters that bear a failure of
// others: present, reached, caught up and not leaving.
type votersCounted struct {
	VoterHealth
	working int
}

func countVoters(set wire.VoterSet) votersCounted {
	h := votersCounted{VoterHealth: VoterHealth{Wanted: set.Wanted}}
	for _, v := range set.Voters {
		if v.Present {
			h.Present++
		}
		if v.Present && v.Reached {
			h.Reachable++
		}
		if v.Present && v.Reached && v.Current {
			h.CaughtUp++
			if !v.Leaving {
				h.working++
			}
		}
	}
	h.Bears = max(0, h.working-(len(set.Voters)/2+1))
	return h
}

// situation gathers the facts. led says whether a leader answers now.
func (n *Node) situation(led bool) *situation {
	s := &situation{
		founded: n.founding.Value() != nil, led: led,
		granting: n.granted.Load(),
		durable:  n.cfg.Dir != "", clashes: n.conflictTexts(), held: n.heldBy(),
	}
	s.wait, s.waitKnown = n.foundingWait()
	s.proof = n.ownProof()
	s.keys, s.keysNext = keyTrouble(n.self, n.gossip.Alive())
	s.estranged = estranged(n.self, n.gossip.All())
	if n.ctx.Err() != nil {
		s.ended = context.Cause(n.ctx)
	}
	if !s.founded || !led {
		s.progress = n.founding.Progress()
	}
	switch {
	case !s.founded:
	case led:
		s.set, s.setKnown = n.votersKnown()
	default:
		s.voters, s.lost = n.votersSeen()
		s.unproved = n.refusedAt()
		s.hopeless, s.outlook = n.outlook()
	}
	return s
}

// noQuorumReason tells why there is no quorum.
func (n *Node) noQuorumReason() string {
	reason, _ := n.situation(false).explain()
	return reason
}

// votersSeen lists the voters of the best configuration this member knows: of its
// own raft, of the last leader, or of gossip; and since when there is no leader.
func (n *Node) votersSeen() (sights []voterSight, lost time.Time) {
	all, streams, now := n.gossip.All(), n.port.Report(), time.Now()
	begun := n.started // as long as no leader was reached
	switch l := n.link.Report(); {
	case l.Reached: // a leader that has not been confirmed in time
		begun = now.Add(-timing.VoterMissed)
	case !l.Since.IsZero():
		lost, begun = l.Since, l.Since
	}
	var ids []string
	set, told := n.voterSet()
	if r := n.seat.Current(); r != nil {
		ids = r.Voters()
	} else if told {
		for _, v := range set.Voters {
			ids = append(ids, v.Raft)
		}
	} else {
		for _, s := range all {
			if id := member.RaftID(s.Name, s.Meta.Generation); s.Meta.Voter && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	for _, id := range ids {
		name, generation, err := member.ParseRaftID(id)
		if err != nil {
			continue
		}
		v := voterSight{name: name}
		var newest uint64
		var last, gone time.Time // of the newest process: heard, and dead by gossip
		living := false
		for _, s := range all {
			if s.Name != name || s.Meta.Generation != generation || s.Boot < newest {
				continue
			}
			newest, v.addr, living, gone = s.Boot, s.Addr, s.Alive, time.Time{}
			peer := port.Peer{Name: s.Name, Boot: s.Boot}
			last = streams.Heard[peer]
			// The streams of a process that was killed are closed at once.
			there := streams.Open[peer] || now.Sub(last) < time.Second
			if !s.Alive {
				gone = s.Since
			}
			v.alive = n.self.Is(s.Process) || last.After(begun) && there && (living || last.After(gone))
		}
		if !v.alive {
			v.maybe = living && !lost.IsZero() && now.Sub(lost) < timing.VoterMissed
			// The last sign, unless gossip has known the process for dead before.
			if v.gone = last; last.IsZero() || !gone.IsZero() && gone.Before(last) {
				v.gone = gone
			}
		}
		sights = append(sights, v)
	}
	return sights, lost
}
