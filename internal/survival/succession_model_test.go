package survival

import (
	"fmt"
	"strings"
)

// The model of a cluster's later life: voters change one by one, the network is
// cut in two, processes restart without memory on either side, and a group of
// members ends a cluster without a majority and founds the successor.
//
// Raft is taken for granted: a change of the voters is one step, with a majority
// of the earlier and of the later voters, and reaches all but perhaps one of the
// voters on the leader's side. The messages of a ballot may be late by any time,
// and cross a cut.

const (
	mostClusters = 4 // X, two successors, and one that the calm at the end may found
	wantedVoters = 3
	mostVersions = 6 // of one cluster's voters, living processes know
)

// clusterID names a cluster: 0 is none, 1 is X, the first.
type clusterID uint8

func (c clusterID) String() string { return string("-XYZW"[c]) }

// succession holds the rules of a succession and the bounds of the exploration.
type succession struct {
	slots  int
	first  processes // the voters of X at the start
	listed mask      // the addresses that the list of Join names
	voice  voice
	size   int // first voters of a successor, at most

	// Bounds.
	ballots, restarts, crashes, changes int
	proposers                           [2]mask
	cuts                                []mask // ways to cut the network: the slots of one side
	cutsMost                            int
	cut                                 mask // the cut at the start; it heals unless cutsMost is 0
	moves                               bool // a process may restart on the other side of a cut
	inTurn                              bool // ballot 1 begins after a successor has granted
	dirs                                bool // a crash loses no memory
	restarting, crashing                mask // the slots of which the processes restart, or crash
	atomic                              bool // all promise in one step, and all accept in one step

	// Rules. A false rule has been taken out.
	whole       bool // every listed address takes part
	sameProcess bool // a promise counts for one process, not for its name
	retires     bool // a voter never votes again once it has promised
	spares      bool // it does not promise while it reaches a majority
	newest      bool // of the voters in its latest entry, not only of those in the last one known to be committed
	again       bool // a member that has a cluster by now does not accept
	allAccept   bool // the whole group accepts, not the new voters alone
	repeats     bool // a later ballot repeats the newest accepted value
	supersedes  bool // unless its voters or its cluster are gone
	silence     bool // a successor is silent for the largest TTL
	holds       bool // a member of another cluster holds a silent cluster's first grant back
	dissolves   bool // a predecessor's leader dissolves a silent successor
	follows     bool // a member whose cluster cannot answer retires when it meets a leader of another
	strangers   bool // of any other, be it a successor or not
	ancestry    bool // a successor knows its predecessors' predecessors
	siblings    bool // so does the leader of another cluster that has granted, or is silent and of a lower ID

	shuns    bool // a member that accepts never enters a cluster that the value ends
	asks     bool // a member that starts with its Dir asks for a successor before it votes
	oneByOne bool // voters change one by one

	// False words.
	ghosts  mask    // slots for processes that count as deleted and still run, at no listed address
	shared  [2]mask // both slots are behind one address: one answers for both
	returns bool    // a process that the operator called gone returns with its memory
	alone   bool    // processes that the operator called gone return while no member of the successor is up
	healing bool    // AssumeGone only: a cut ends before a silence does
}

// A voice tells the group which processes may live outside the group.
type voice uint8

const (
	completeList voice = iota // nobody: every listed address is in the group
	assumeGone                // nobody who matters: the silent are gone
	recovery                  // the operator: the processes that are down
	knownVoters               // nobody: every voter that the proposer knows of is in the group
	noVoice
)

func allSuccessionRules() succession {
	return succession{
		whole: true, sameProcess: true, retires: true, spares: true, newest: true, again: true, allAccept: true,
		repeats: true, supersedes: true, silence: true,
		holds: true, dissolves: true, follows: true, strangers: true, ancestry: true, siblings: true, shuns: true, asks: true, oneByOne: true,
		proposers: [2]mask{0xff, 0xff}, size: 3, moves: true, restarting: 0xff, crashing: 0xff,
	}
}

type lifeState struct {
	side     mask // the slots beyond the cut
	down     mask // slots without a process
	in       [mostSlots]clusterID
	version  [mostSlots]uint8 // of the voters, as the process knows them
	retired  [mostSlots]mask  // clusters, by clusterID
	shunned  [mostSlots]mask  // clusters that a value ends which the process has accepted
	promised [mostSlots]uint8 // ballot plus one
	accepted [mostSlots]uint8 // ballot plus one
	clusters [mostClusters + 1]cluster
	ballots  [mostBallots]lifeBallot
	trusted  mask // clusters of which some holder may still trust a lock
	killed   bool // a retirement took the majority from a cluster that had one

	restarts, crashes, changes, cuts uint8
}

type cluster struct {
	voters   [mostVersions]processes // by version
	newest   uint8
	founders processes // the first voters
	ends     mask      // clusters that it succeeds
	lifted   bool      // the silence after the founding has passed
}

type lifeBallot struct {
	by       uint8     // slot plus one, or ended
	ends     mask      // clusters
	group    mask      // slots that must take part
	promises processes // told to the proposer
	accepted [mostSlots]uint8
	value    clusterID
	accepts  mask
	decided  bool
}

func (u succession) model() model[lifeState] {
	s := lifeState{side: u.cut, down: u.ghosts}
	for q := range u.slots {
		if u.first.live(q) {
			s.in[q] = 1
		}
	}
	if u.first != 0 {
		x := &s.clusters[1]
		x.voters[0], x.founders, x.lifted = u.first, u.first, true
		s.trusted = 1 << 1
	}
	return model[lifeState]{start: []lifeState{s}, steps: u.steps, wrong: u.wrong, heal: u.heal, show: u.show}
}

func (u succession) steps(s lifeState, to func(label, lifeState)) {
	tidied := func(l label, t lifeState) {
		t.tidy()
		to(l, t)
	}
	u.faults(s, tidied)
	for p := range u.slots {
		if u.leads(&s, p) {
			u.leaderSteps(s, p, tidied)
		}
		u.meetingSteps(s, p, tidied)
		for b := range u.ballots {
			if u.inTurn && b == 1 && !s.clusters[2].lifted {
				continue
			}
			if s.ballots[b].by == 0 && u.proposers[b].has(p) && !s.down.has(p) && (s.in[p] == 0 || !u.mayAnswer(&s, p)) {
				u.open(s, b, p, tidied)
			}
		}
	}
	for c := clusterID(2); c < mostClusters; c++ {
		if !s.clusters[c].lifted && u.leader(&s, c) >= 0 && u.mayLift(&s, c) {
			t := s
			u.lift(&t, c)
			tidied(label{"the silence of cluster #b passes", 0, int(c) - 1}, t)
		}
	}
	for b := range u.ballots {
		if s.ballots[b].by != 0 {
			u.ballotSteps(s, b, tidied)
		}
	}
}

func (u succession) wrong(s lifeState) string {
	if s.killed {
		return "a living cluster is ended"
	}
	grants := mask(0)
	for p := range u.slots {
		if u.leads(&s, p) && s.clusters[s.in[p]].lifted {
			grants |= 1 << s.in[p]
		}
		for q := range u.slots {
			if s.in[p] == s.in[q] && u.leads(&s, p) && u.leads(&s, q) && !s.reaches(p, q) {
				return "one cluster has two leaders"
			}
		}
	}
	if grants.size() > 1 {
		return twoClusters
	}
	if grants != 0 && s.trusted&^grants != 0 {
		return "a lock is granted while a holder in another cluster still trusts it"
	}
	return ""
}

func (u succession) show(s lifeState) string {
	var b strings.Builder
	for q := range u.slots {
		b.WriteString(slotName(q))
		if s.down.has(q) {
			b.WriteString(" down")
		}
		if s.side.has(q) {
			b.WriteString("|")
		}
		if s.in[q] != 0 {
			fmt.Fprintf(&b, ":%v%v", s.in[q], s.clusters[s.in[q]].voters[s.version[q]])
		}
		if s.retired[q] != 0 {
			fmt.Fprintf(&b, " r%b", s.retired[q])
		}
		if s.promised[q] != 0 {
			fmt.Fprintf(&b, " p%d", s.promised[q]-1)
		}
		if s.accepted[q] != 0 {
			fmt.Fprintf(&b, " a%d", s.accepted[q]-1)
		}
		b.WriteString("; ")
	}
	return b.String()
}
