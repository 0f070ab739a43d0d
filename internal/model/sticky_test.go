package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The model of a sticky key: a block of tokens, local locks, the recall, and the loss of the
// session. Client A asks with Sticky; client B is any other request, which waits. What the
// model of sessions proves is taken for granted: a session ends in the table only after the
// trust of its client is over. The client may not have noticed.

// sticky holds the rules and the bounds.
type sticky struct {
	block  uint8 // tokens reserved after a grant's own
	tokens uint8 // the cluster grants up to this token

	// Rules. A false rule has been taken out.
	reserves  bool // machine/grant.go: the block is taken out of the cluster's counter
	snapshots bool // machine/snapshot.go: from a snapshot too, the counter goes on behind the block
	asksClock bool // locks/sticky.go reacquire: the clocks are read at each lock
	endsFirst bool // locks/sticky.go keep: no lock before the context of the last has ended
	awaits    bool // locks/session.go awaitCancels: a grant is given back after the context has ended
	obeys     bool // locks/sticky.go keep: a recalled grant is not kept
	gives     bool // locks/sticky.go unlockAndGiveBack: a kept key is given back at a recall
	early     bool // locks/event.go handleNotice: a recall that overtakes the grant's answer counts
	withGrant bool // locks/event.go newLock: the answer to a request says that others wait
	retells   bool // machine retells a recall on each new connection
	bounded   bool // locks/sticky.go reacquire: the last token of a block is the last
}

func allStickyRules() sticky {
	return sticky{
		block: 1, tokens: 8,
		reserves: true, snapshots: true, asksClock: true, endsFirst: true, awaits: true, obeys: true, gives: true,
		early: true, withGrant: true, retells: true, bounded: true,
	}
}

type stickyState struct {
	// The table.
	holder  uint8 // 0, A or B
	counter uint8
	granted uint8 // token of the grant
	waiting uint8 // B is in the queue
	queued  uint8 // A is in the queue

	// On the way to A.
	cut    uint8
	answer uint8 // the grant, told once and again until A hears
	others uint8 // the answer says that others wait
	notice uint8 // the recall

	// Client A.
	over, noticed uint8 // the trust is over, and A has noticed
	lock          uint8 // living, or marked as ended with the context alive
	token         uint8 // of the lock
	kept          uint8 // the key is kept without a lock
	next, last    uint8 // of the block
	own           uint8 // token of the grant that A knows, or 0
	recalled      uint8 // A has heard the recall of its grant
	release       uint8 // token to give back

	highest uint8 // token of all locks so far
	bad     uint8
}

const (
	holderA uint8 = 1
	holderB uint8 = 2

	lives uint8 = 1
	ends  uint8 = 2 // marked; whoever looks at the context sees it alive
	yes   uint8 = 1
)

const (
	stickyTwo uint8 = 1 + iota
	stickyToken
	stickyStranger
	stickyPassed
)

func (r sticky) model() model[stickyState] {
	return model[stickyState]{start: []stickyState{{}}, steps: r.steps, wrong: r.wrong, show: r.show}
}

func (r sticky) wrong(s stickyState) string {
	switch s.bad {
	case stickyTwo:
		return "P1: two contexts of one key are alive in a client"
	case stickyToken:
		return "P2: the token of a lock does not rise"
	case stickyStranger:
		return "P3: a lock is made of a key that is another's"
	case stickyPassed:
		return "P6: a lock is made of a recalled grant"
	}
	if s.holder == holderB && s.lock != 0 && s.over == 0 {
		return "P3: a context of client A is alive, and the key is granted to B"
	}
	heard := s.recalled != 0 || s.release == s.granted || s.answer != 0 && s.others != 0
	if s.holder == holderA && s.waiting != 0 && s.over == 0 && s.cut == 0 && s.notice == 0 && !heard {
		return "P6: a recall is lost, and B waits while A keeps the key"
	}
	return ""
}

func (r sticky) show(s stickyState) string {
	var b strings.Builder
	switch s.holder {
	case 0:
		b.WriteString("key free")
	case holderA:
		fmt.Fprintf(&b, "key A's under %d", s.granted)
	case holderB:
		fmt.Fprintf(&b, "key B's under %d", s.granted)
	}
	for _, f := range []struct {
		is   bool
		text string
	}{
		{s.waiting != 0, ", B waits"}, {s.cut != 0, " | cut"}, {s.answer != 0, " | answer under way"}, {s.notice != 0, " | recall under way"},
		{s.over != 0, " | A's trust is over"}, {s.lock == lives, fmt.Sprintf(" | A's lock %d", s.token)},
		{s.lock == ends, fmt.Sprintf(" | A's lock %d ends", s.token)}, {s.kept != 0, fmt.Sprintf(" | A keeps %d to %d", s.next, s.last)},
		{s.release != 0, fmt.Sprintf(" | Release of %d", s.release)},
	} {
		if f.is {
			b.WriteString(f.text)
		}
	}
	return b.String()
}

func (r sticky) steps(s stickyState, to func(step, stickyState)) {
	is := func(text string, t stickyState) { to(step{text: text}, t) }
	r.tableSteps(s, is)
	r.networkSteps(s, is)
	r.localSteps(s, is)
}

// grant grants the key in the table: to the first waiter, if any.
func (r sticky) grant(s *stickyState, toA bool) {
	s.counter++
	s.granted = s.counter
	if !toA {
		s.holder, s.waiting = holderB, 0
		if s.counter <= s.highest {
			s.bad = stickyToken
		}
		s.highest = max(s.highest, s.counter)
		return
	}
	s.holder, s.queued, s.answer, s.others = holderA, 0, yes, 0
	if r.reserves {
		s.counter += r.block
	}
	if r.withGrant {
		s.others = s.waiting
	}
}

func (r sticky) tableSteps(s stickyState, is func(string, stickyState)) {
	room := s.counter+1+r.block <= r.tokens
	if s.waiting == 0 && s.holder != holderB {
		t := s
		t.waiting = yes
		if s.holder == holderA && s.cut == 0 {
			t.notice = yes
		}
		is("B asks for the key", t)
	}
	if s.holder == 0 && room {
		if s.waiting != 0 {
			t := s
			r.grant(&t, false)
			is("the key is granted to B", t)
		}
		if s.queued != 0 { // whoever asked first
			t := s
			r.grant(&t, true)
			is("the key is granted to A", t)
		}
	}
	if s.holder == holderB {
		t := s
		t.holder = 0
		is("B releases", t)
	}
	if s.release != 0 && (s.lock != ends || !r.awaits) {
		t := s
		t.release = 0
		if s.holder == holderA && s.granted == s.release {
			t.holder, t.notice = 0, 0
		}
		is("A's Release arrives", t)
	}
	if s.over != 0 && (s.holder == holderA || s.queued != 0) {
		t := s
		t.queued, t.answer, t.notice = 0, 0, 0
		if s.holder == holderA {
			t.holder = 0
		}
		is("the session of A ends", t)
	}
	if !r.snapshots && s.counter != s.granted {
		t := s
		t.counter = s.granted
		is("a leader starts from a snapshot", t)
	}
}

func (r sticky) networkSteps(s stickyState, is func(string, stickyState)) {
	t := s
	if s.cut == 0 {
		t.cut, t.notice = yes, 0
		is("A's connection breaks", t)
	} else {
		t.cut = 0
		if r.retells && s.holder == holderA && s.waiting != 0 {
			t.notice = yes
		}
		is("A connects again", t)
	}
	if s.answer != 0 && s.cut == 0 && s.noticed == 0 {
		t := s
		t.answer = 0
		if s.over == 0 {
			t.own, t.next, t.last = s.granted, s.granted+1, s.granted+r.block
			t.recalled |= s.others
			r.lock(&t, s.granted)
		}
		is("A hears of its grant", t)
	}
	if s.notice != 0 && s.noticed == 0 {
		t := s
		t.notice = 0
		switch {
		case s.answer != 0:
			if r.early {
				t.recalled = yes
			}
		case s.kept != 0:
			t.recalled = yes
			if r.gives {
				t.kept, t.release = 0, s.own
			}
		case s.own != 0:
			t.recalled = yes
		}
		is("A hears the recall", t)
	}
}

// lock makes a lock of A.
func (r sticky) lock(s *stickyState, token uint8) {
	switch {
	case s.lock != 0:
		s.bad = stickyTwo
	case s.holder != holderA:
		s.bad = stickyStranger
	case token <= s.highest:
		s.bad = stickyToken
	}
	s.lock, s.token = lives, token
	s.highest = max(s.highest, token)
}

func (r sticky) localSteps(s stickyState, is func(string, stickyState)) {
	if s.over == 0 {
		t := s
		t.over = yes
		is("A's trust is over", t)
	} else if s.noticed == 0 {
		t := s
		t.noticed, t.lock, t.kept, t.own, t.recalled, t.release = yes, 0, 0, 0, 0, 0
		is("A notices", t)
	}
	if s.noticed != 0 {
		return
	}
	used := s.next > s.last && r.bounded
	if s.kept != 0 && !used && (s.lock == 0 || !r.endsFirst) && (s.over == 0 || !r.asksClock) {
		t := s
		if t.kept = 0; s.recalled != 0 {
			t.bad = stickyPassed
		}
		r.lock(&t, s.next)
		t.next++
		is("A acquires the key again, and asks nobody", t)
	}
	if s.queued == 0 && s.answer == 0 && s.over == 0 && s.lock == 0 && s.release == 0 && (s.own == 0 || s.kept != 0 && used) {
		t := s
		if s.kept != 0 && s.holder == holderA { // in one message
			t.holder = 0
		}
		t.queued, t.kept, t.own, t.recalled, t.next, t.last = yes, 0, 0, 0, 0, 0
		if t.holder == 0 {
			t.notice = 0
		}
		is("A asks the cluster for the key", t)
	}
	if s.lock == lives {
		t := s
		t.lock = ends
		if s.recalled == 0 || !r.obeys {
			t.kept = yes
		} else {
			t.release, t.own, t.recalled = s.own, 0, 0
		}
		is("A releases its lock", t)
	}
	if s.lock == ends {
		t := s
		t.lock, t.token = 0, 0
		is("the context of A's lock ends", t)
	}
	if s.kept == 0 && s.lock == 0 && s.own != 0 && s.release != 0 {
		t := s
		t.own, t.recalled, t.next, t.last = 0, 0, 0, 0
		is("A forgets the grant", t)
	}
}

func (r sticky) bounds() string {
	return fmt.Sprintf("blocks of %d tokens, tokens to %d", r.block, r.tokens)
}

func TestStickyKeysKeepTheirPromises(t *testing.T) {
	name, all := "sticky.txt", []sticky{allStickyRules(), allStickyRules()}
	all[1].block = 2
	if testrounds.Full() {
		name = "sticky_full.txt"
		all[0].tokens, all[1].tokens = 40, 60
	}
	var text strings.Builder
	for _, r := range all {
		text.WriteString(holds(t, r.model(), r.bounds(), 10_000_000))
	}
	golden(t, name, text.String())
}

func TestEachRuleOfStickyKeysIsNeeded(t *testing.T) {
	var text strings.Builder
	for _, c := range []struct {
		name    string
		without func(r *sticky)
		want    string
	}{
		{"the block is not taken out of the cluster's counter", func(r *sticky) { r.reserves = false }, p2},
		{"a snapshot has the token of the grant alone", func(r *sticky) { r.snapshots = false }, p2},
		{"a lock is made without a look at the clocks", func(r *sticky) { r.asksClock = false }, p3},
		{"a lock is made before the context of the last has ended", func(r *sticky) { r.endsFirst = false }, p1},
		{"a grant is given back before the context has ended", func(r *sticky) { r.awaits = false }, p3},
		{"a recalled grant is kept", func(r *sticky) { r.obeys = false }, "P6"},
		{"a kept key is not given back at a recall", func(r *sticky) { r.gives = false }, "P6"},
		{"a recall that overtakes the answer to the request is dropped", func(r *sticky) { r.early = false }, "P6"},
		{"the answer to a request does not say that others wait", func(r *sticky) { r.withGrant = false }, "P6"},
		{"a recall is told on one connection only", func(r *sticky) { r.retells = false }, "P6"},
		{"locks go on after the last token of the block", func(r *sticky) { r.bounded = false }, p2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := allStickyRules()
			c.without(&r)
			fmt.Fprintf(&text, "# %s\n%s\n", c.name, breaks(t, r.model(), 1_000_000, c.want))
		})
	}
	golden(t, "sticky_rules.txt", text.String())
}
