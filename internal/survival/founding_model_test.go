package survival

import (
	"fmt"
	"strings"
)

// The model of the first founding: declared founders, of which each may be
// restarted without memory at any moment, agree on a first set of voters by
// ballots. A message, once sent, may arrive at any later time, several times or
// never; a message is addressed to a single boot. So partitions need no state of their own.

const (
	mostSlots   = 5
	mostBallots = 3
)

// founders holds the rules of a founding and the bounds of the exploration.
type founders struct {
	declared int // slots 0 to declared-1 are founders by name
	slots    int // all slots, other members included
	absent   mask
	durable  mask // slots that forget nothing at a restart

	// Bounds.
	ballots, restarts, changes int
	proposers                  [2]mask // slots that open ballot 0 and ballot 1
	groups                     [2]mask // founders asked in ballot 0 and ballot 1

	// Rules. A false rule has been taken out.
	covers       bool // in memory, the quorum exceeds the members outside a majority of the voters
	bareForDirs  bool // a bare majority founds if all of them have a Dir
	repeats      bool // a later ballot repeats the newest accepted value
	supersedes   bool // unless a majority of its voters have lost their memory
	answers      bool // a founded member answers Prepare with its founding
	byRaftID     bool // a founding is adopted by the raft IDs that it names; else by the names
	byLeader     bool // everybody else adopts it from a leader only
	foundersVote bool // only declared founders become voters
	neverOne     bool // voters never shrink below the number that the quorum relies on

	lostDir bool // a false word: a member that lost its Dir says that it has one
}

func allFounderRules(n int) founders {
	return founders{
		declared: n, slots: n, ballots: 2, proposers: [2]mask{0xff, 0xff}, groups: [2]mask{0xff, 0xff},
		covers: true, bareForDirs: true, repeats: true, supersedes: true, answers: true,
		byRaftID: true, byLeader: true, foundersVote: true, neverOne: true,
	}
}

// foundingState is a state. Values are named by the ballot of their birth, plus
// one; zero means none.
type foundingState struct {
	promised [mostSlots]uint8 // ballot plus one
	accepted [mostSlots]uint8 // ballot plus one
	founded  [mostSlots]uint8 // value
	ballots  [mostBallots]ballot
	config   [mostBallots]processes // value: the present voters
	voters   [mostBallots]processes // value: the first voters
	restarts uint8
	changes  uint8
}

type ballot struct {
	by       uint8 // slot plus one
	asked    processes
	promises mask
	accepted [mostSlots]uint8 // told with the promise: ballot plus one
	value    uint8
	accepts  mask
	decided  bool
}

func (f founders) model() model[foundingState] {
	return model[foundingState]{
		start: []foundingState{{}},
		steps: f.steps,
		wrong: f.wrong,
		heal:  f.heal,
		show:  f.show,
	}
}

func (f founders) steps(s foundingState, to func(label, foundingState)) {
	for q := range f.slots {
		if f.absent.has(q) {
			continue
		}
		if int(s.restarts) < f.restarts && (f.lostDir || !f.durable.has(q)) {
			t := s
			t.restarts++
			t.restart(q)
			to(label{"$a restarts without memory", q, 0}, t)
		}
		if s.founded[q] == 0 {
			f.adopt(s, q, to)
		}
		if q < f.declared && s.founded[q] == 0 {
			for b := range f.ballots {
				if s.ballots[b].by == 0 && f.proposers[b].has(q) {
					t := s
					t.ballots[b].by = uint8(q + 1)
					for r := range f.declared {
						if f.groups[b].has(r) {
							t.ballots[b].asked = t.ballots[b].asked.with(r)
						}
					}
					to(label{"$a opens ballot #b", q, b}, t)
				}
			}
		}
	}
	for b := range f.ballots {
		if s.ballots[b].by != 0 {
			f.ballotSteps(s, b, to)
		}
	}
	for v := range f.ballots {
		if s.voters[v] != 0 && int(s.changes) < f.changes && f.grants(s, v+1) {
			f.changeSteps(s, v+1, to)
		}
	}
}

// restart puts a new process into slot q. No message reaches the earlier
// process, and nothing begun by the earlier process goes on.
func (s *foundingState) restart(q int) {
	s.promised[q], s.accepted[q], s.founded[q] = 0, 0, 0
	for b := range s.ballots {
		bal := &s.ballots[b]
		bal.asked = bal.asked.without(q)
		if int(bal.by) == q+1 {
			bal.by = ended
		}
		s.voters[b], s.config[b] = s.voters[b].restarted(q), s.config[b].restarted(q)
	}
	s.tidy()
}

// tidy forgets everything without a meaning for any rule. States with no other
// difference become the same state.
func (s *foundingState) tidy() {
	for b := range s.ballots {
		bal := &s.ballots[b]
		if bal.by == 0 || bal.by != ended && s.founded[bal.by-1] == 0 {
			continue
		}
		*bal = ballot{by: ended, asked: bal.asked, value: bal.value, decided: bal.decided}
		if bal.value == 0 {
			bal.asked = 0
		}
	}
	for v := range s.voters {
		known := false
		for q := range s.founded {
			known = known || int(s.founded[q]) == v+1 || s.accepted[q] != 0 && int(s.ballots[s.accepted[q]-1].value) == v+1
		}
		for b := range s.ballots {
			bal := &s.ballots[b]
			known = known || int(bal.value) == v+1 && (bal.asked != 0 || bal.by != ended)
			for _, told := range bal.accepted {
				known = known || told != 0 && int(s.ballots[told-1].value) == v+1
			}
		}
		if !known {
			s.voters[v], s.config[v] = 0, 0
			for b := range s.ballots {
				if int(s.ballots[b].value) == v+1 {
					s.ballots[b] = ballot{by: ended}
				}
			}
		}
	}
}

const ended = 0xff // in place of the proposer of a ballot that does not go on

// adopt lets a member without a cluster learn of a founding.
func (f founders) adopt(s foundingState, q int, to func(label, foundingState)) {
	for v := range f.ballots {
		if s.voters[v] == 0 {
			continue
		}
		passedOn := false
		for r := range f.slots {
			passedOn = passedOn || !f.byLeader && s.founded[r] == uint8(v+1)
		}
		if passedOn || f.grants(s, v+1) {
			t := s
			t.founded[q] = uint8(v + 1)
			t.tidy()
			to(label{"$a adopts founding #b, as its leader confirms", q, v}, t)
		}
	}
}

func (f founders) ballotSteps(s foundingState, b int, to func(label, foundingState)) {
	bal := &s.ballots[b]
	p := int(bal.by) - 1
	running := bal.by != ended
	for q := range f.declared {
		if f.absent.has(q) || !bal.asked.live(q) {
			continue // no message reaches a process that it is not addressed to
		}
		t := s
		if s.founded[q] != 0 {
			if f.answers && running && f.named(s, p, int(s.founded[q])) {
				t.founded[p] = s.founded[q]
				t.tidy()
				to(label{"$b answers $a: decided", p, q}, t)
			}
		} else if int(s.promised[q]) <= b+1 && !bal.promises.has(q) && bal.value == 0 && running {
			t.promised[q] = uint8(b + 1)
			t.ballots[b].promises |= 1 << q
			t.ballots[b].accepted[q] = s.accepted[q]
			to(label{"$a promises ballot #b", q, b}, t)
		}
		if bal.value != 0 && s.founded[q] == 0 && int(s.promised[q]) <= b+1 {
			t := s
			t.promised[q], t.accepted[q] = uint8(b+1), uint8(b+1)
			if running {
				t.ballots[b].accepts |= 1 << q & bal.promises
			}
			if t != s {
				to(label{"$a accepts in ballot #b", q, b}, t)
			}
		}
		if bal.decided && s.founded[q] == 0 && f.named(s, q, int(bal.value)) {
			t := s
			t.founded[q] = bal.value
			t.tidy()
			to(label{"$a hears what ballot #b has chosen", q, b}, t)
		}
	}
	if !running {
		return
	}
	if bal.value == 0 {
		for set := bal.promises; set != 0; set = (set - 1) & bal.promises { // the others' answers are lost
			if t, ok := f.propose(s, b, set); ok {
				to(label{"$a has promises enough for ballot #b", p, b}, t)
			}
		}
	} else if !bal.decided && bal.accepts.size() >= f.quorum(bal.promises, s.voters[bal.value-1].size()) {
		t := s
		t.ballots[b].decided = true
		if f.named(s, p, int(bal.value)) {
			t.founded[p] = bal.value
		}
		t.tidy()
		to(label{"$a knows that ballot #b has chosen", p, b}, t)
	}
}

// quorum is the number of founders needed by a ballot for so many voters.
func (f founders) quorum(group mask, voters int) int {
	bare := majority(f.declared)
	if f.bareForDirs && group&^f.durable == 0 || !f.covers {
		return max(bare, min(voters, bare))
	}
	return max(voters, bare, f.declared-majority(voters)+1)
}

// propose puts a value to the vote, given the promises of a set of founders.
func (f founders) propose(s foundingState, b int, set mask) (foundingState, bool) {
	bal := &s.ballots[b]
	best := uint8(0)
	for q := range f.declared {
		if set.has(q) {
			best = max(best, bal.accepted[q])
		}
	}
	if best != 0 && f.repeats {
		v := s.ballots[best-1].value
		lost := 0
		for q := range f.declared {
			if set.has(q) && s.voters[v-1].names(q) && !s.voters[v-1].live(q) {
				lost++
			}
		}
		n := s.voters[v-1].size()
		if n-lost >= majority(n) || !f.supersedes {
			if set.size() < f.quorum(set, n) {
				return s, false
			}
			bal.value, bal.promises = v, set
			return s, true
		}
	}
	n := min(3, set.size())
	for n > 0 && f.quorum(set, n) > set.size() {
		n--
	}
	if n == 0 || n == 1 && f.declared > 1 {
		return s, false
	}
	var voters processes
	for q := range f.declared {
		if set.has(q) && voters.size() < n {
			voters = voters.with(q)
		}
	}
	bal.value, bal.promises = uint8(b+1), set
	s.voters[b], s.config[b] = voters, voters
	return s, true
}

// changeSteps are changes of a cluster's voters. The leader adds or removes one
// voter, with a majority of the earlier and of the later voters.
func (f founders) changeSteps(s foundingState, v int, to func(label, foundingState)) {
	least := 1
	if f.neverOne {
		// Nobody founds with fewer founders than the smallest quorum. The members
		// outside a majority of the voters must stay below this number.
		quorum := f.declared
		for n := 2; n <= 3; n++ {
			quorum = min(quorum, f.quorum(1<<f.declared-1, n))
		}
		for majority(least) < f.declared-quorum+1 {
			least++
		}
	}
	for q := range f.slots {
		if f.absent.has(q) {
			continue
		}
		t := s
		t.changes++
		text := "$a is no voter of founding #b any more"
		if s.config[v-1].names(q) {
			t.config[v-1] = s.config[v-1].without(q)
			if t.config[v-1].size() < least {
				continue
			}
		} else if int(s.founded[q]) == v && (q < f.declared || !f.foundersVote) {
			t.config[v-1] = s.config[v-1].with(q)
			text = "$a becomes a voter of founding #b"
		} else {
			continue
		}
		if f.grants(t, v) {
			to(label{text, q, v - 1}, t)
		}
	}
}

// named reports whether value v names the present process of slot q as a voter.
func (f founders) named(s foundingState, q, v int) bool {
	return s.voters[v-1].live(q) || !f.byRaftID && s.voters[v-1].names(q)
}

// grants reports whether the cluster of value v has a majority of its voters.
func (f founders) grants(s foundingState, v int) bool {
	have := 0
	for q := range f.slots {
		if s.config[v-1].live(q) && int(s.founded[q]) == v {
			have++
		}
	}
	return have >= majority(s.config[v-1].size()) && have > 0
}

func (f founders) wrong(s foundingState) string {
	n := 0
	for v := range f.ballots {
		if s.voters[v] != 0 && f.grants(s, v+1) {
			n++
		}
	}
	if n > 1 {
		return "two clusters grant"
	}
	return ""
}

// heal plays a calm end: named members ask the founded ones, the unfounded hold
// a ballot. If the ballot makes no cluster, the members in a cluster without a
// majority are restarted in turn.
func (f founders) heal(s foundingState) string {
	for range 3 * f.slots {
		for q := range f.declared {
			for r := range f.declared {
				if v := int(s.founded[r]); v != 0 && s.founded[q] == 0 && f.answers && !f.absent.has(q) && f.named(s, q, v) {
					s.founded[q] = uint8(v)
				}
			}
		}
		for v := range f.ballots {
			if s.voters[v] != 0 && f.grants(s, v+1) {
				return ""
			}
		}
		if f.calmBallot(&s) {
			return ""
		}
		restarted := false
		for q := range f.slots {
			if v := int(s.founded[q]); v != 0 && !f.durable.has(q) && !restarted && f.lost(s, v) {
				s.restart(q)
				restarted = true
				for r := range f.slots {
					if !f.byLeader && s.founded[r] != 0 {
						s.founded[q] = s.founded[r] // the first answer of any member
					}
				}
			}
		}
	}
	return "no cluster grants though every fault has ended"
}

// lost reports whether the cluster of v has lost a majority of its voters for good.
func (f founders) lost(s foundingState, v int) bool {
	left := 0
	for q := range f.slots {
		if s.config[v-1].live(q) {
			left++
		}
	}
	return left < majority(s.config[v-1].size())
}

// calmBallot reports whether a ballot of all unfounded founders, without lost
// messages, makes a granting cluster.
func (f founders) calmBallot(s *foundingState) bool {
	b := f.ballots // a ballot above all others
	bal := ballot{}
	for q := range f.declared {
		if s.founded[q] == 0 && !f.absent.has(q) {
			bal.promises |= 1 << q
			bal.accepted[q] = s.accepted[q]
		}
		bal.asked = bal.asked.with(q)
	}
	t := *s
	t.ballots[b] = bal
	t, ok := f.propose(t, b, bal.promises)
	if !ok {
		return false
	}
	v := t.ballots[b].value
	for q := range f.declared {
		if t.founded[q] == 0 && !f.absent.has(q) && f.named(t, q, int(v)) {
			t.founded[q] = v
		}
	}
	return f.grants(t, int(v))
}

func (f founders) show(s foundingState) string {
	var b strings.Builder
	for q := range f.slots {
		b.WriteString(slotName(q))
		if s.promised[q] != 0 {
			fmt.Fprintf(&b, " p%d", s.promised[q]-1)
		}
		if s.accepted[q] != 0 {
			fmt.Fprintf(&b, " a%d", s.accepted[q]-1)
		}
		if s.founded[q] != 0 {
			fmt.Fprintf(&b, " in %d", s.founded[q]-1)
		}
		b.WriteString("; ")
	}
	for v := range mostBallots {
		if s.config[v] != 0 {
			fmt.Fprintf(&b, "founding %d of %v, now %v; ", v, s.voters[v], s.config[v])
		}
	}
	return b.String()
}
