package history

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// locking checks with Porcupine that some order of the calls, in which each takes effect
// between Call and Return, explains all answers about grants: in one step a request is
// granted or refused, a grant is freed, changes its mode, or a capacity is set.
//
// The end of a grant is a step too. After a Release that was answered, the step lies within
// the Release. After any other end the step lies behind the last moment at which the
// holder was told that it holds: the session expires no earlier. If a later grant in
// conflict is on record, the step lies before that call's return; otherwise the step may
// never happen. Histories are split by keys, so that a search stays short.
func locking(h *History) (found []Violation, made Searches) {
	var ops []*Op
	var claims []claim
	for i := range h.Ops {
		o := &h.Ops[i]
		switch o.Kind {
		case Acquire, Try, SetCapacity:
			ops = append(ops, o)
			claims = append(claims, o.claim())
		}
	}
	groups := make(map[int]*component)
	byID := make(map[string]*component)
	for i, c := range components(claims) {
		if groups[c] == nil {
			groups[c] = &component{h: h, grantOf: make(map[string]*granted)}
		}
		groups[c].ops = append(groups[c].ops, ops[i])
		byID[ops[i].ID] = groups[c]
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if c := byID[o.Grant]; c != nil && o.Grant != "" {
			c.changes = append(c.changes, o)
		}
	}
	for i := range h.Holds {
		if c := byID[h.Holds[i].Op]; c != nil {
			c.holds = append(c.holds, &h.Holds[i])
		}
	}
	for _, i := range sortedKeys(groups) {
		v, n := groups[i].check()
		if v != nil {
			found = append(found, *v)
		}
		made = made.Add(n)
	}
	return found, made
}

// A component is the calls about some keys that no other calls meet.
type component struct {
	h       *History
	ops     []*Op // Acquire, Try and SetCapacity
	changes []*Op // Release, HandOver, Upgrade and Downgrade
	holds   []*Hold

	grants   []*granted
	grantOf  map[string]*granted // by the ID of the op
	steps    []porcupine.Operation
	ids      []string // of the op of each step
	sticky   bool
	unknowns []*Op
}

// granted is a grant that a call was shown, with the locks of its owner.
type granted struct {
	n       int
	op      *Op
	claim   claim
	weak    bool // the mode changed, or may have: readers may be beside
	token   uint64
	valid   int64 // the last moment at which the holder was told that it holds
	freed   []*Op // the releases
	locks   int   // of the owner
	changes []*Op
}

func (c *component) check() (*Violation, Searches) {
	c.collect()
	for _, o := range c.ops {
		c.request(o)
	}
	for _, g := range c.grants {
		for _, o := range g.changes {
			c.change(g, o)
		}
		c.free(g)
	}
	if len(c.grants) == 0 {
		return nil, Searches{}
	}
	switch porcupine.CheckOperationsTimeout(lockModel(c), c.steps, c.h.patience()) {
	case porcupine.Unknown:
		return nil, Searches{1, 1}
	case porcupine.Illegal:
		return c.explain(), Searches{1, 0}
	}
	return nil, Searches{1, 0}
}

// explain describes a component that no order of its steps explains.
func (c *component) explain() *Violation {
	_, info := porcupine.CheckOperationsVerbose(lockModel(c), c.steps, c.h.patience())
	v := &Violation{Check: "model", Key: c.ops[0].key(), At: math.MaxInt64}
	explained := make(map[int]bool)
	longest := []int{}
	for _, partition := range info.PartialLinearizations() {
		for _, p := range partition {
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	for _, i := range longest {
		explained[i] = true
	}
	text := ""
	for i, s := range c.steps {
		v.Until = max(v.Until, s.Call)
		if !explained[i] && s.Call < v.At {
			v.At, text = s.Call, fmt.Sprint(s.Input, " of ", c.ids[i])
		}
		if !explained[i] && len(v.IDs) < 12 {
			v.IDs = append(v.IDs, c.ids[i])
		}
	}
	v.Text = fmt.Sprintf("no order of the %d steps of %d grants explains the answers; %d steps fit, the first other one is: %s",
		len(c.steps), len(c.grants), len(longest), text)
	return v
}

// collect finds the grants.
func (c *component) collect() {
	byToken := make(map[uint64]*granted)
	for _, o := range c.ops {
		switch {
		case o.Kind == SetCapacity:
		case o.grants():
			if o.Retried {
				c.unknowns = append(c.unknowns, o)
			}
			g := &granted{n: len(c.grants), op: o, claim: o.claim(), token: o.Token, valid: o.Call, locks: 1}
			c.grants = append(c.grants, g)
			c.grantOf[o.ID] = g
			byToken[o.Token] = g
			c.sticky = c.sticky || o.Sticky
		case o.Outcome != Refused && o.Outcome != Done || o.Retried:
			c.unknowns = append(c.unknowns, o)
		}
	}
	for _, o := range c.ops {
		if g := byToken[o.Token]; o.Shared && g != nil && o.Outcome == Done {
			c.grantOf[o.ID] = g
			g.locks++
		}
	}
	for _, h := range c.holds {
		if g := c.grantOf[h.Op]; g != nil {
			g.valid = max(g.valid, h.Valid)
		}
	}
	for _, o := range c.changes {
		g := c.grantOf[o.Grant]
		if g == nil {
			continue
		}
		switch o.Kind {
		case Release, HandOver:
			if o.Outcome != Refused {
				g.freed = append(g.freed, o)
			}
		case Upgrade, Downgrade:
			if o.Outcome != Refused {
				g.weak = true
				g.changes = append(g.changes, o)
				g.token = max(g.token, o.Token)
			}
		}
	}
}

func (c *component) step(o *Op, s lockStep, from, to int64) {
	if to == 0 {
		to = math.MaxInt64
	}
	c.steps = append(c.steps, porcupine.Operation{ClientId: len(c.steps), Input: s, Call: from, Return: max(from, to)})
	c.ids = append(c.ids, o.ID)
}

// request adds the step of a request.
func (c *component) request(o *Op) {
	switch {
	case o.Kind == SetCapacity && o.Outcome == Done:
		c.step(o, lockStep{kind: stepCapacity, op: o}, o.Call, o.Return)
	case o.Kind == SetCapacity:
	case o.grants():
		c.step(o, lockStep{kind: stepTake, op: o, grant: c.grantOf[o.ID].n}, o.Call, o.Return)
	case o.Outcome != Refused || c.excused(o):
	case o.Err == ErrHeld && o.Kind == Try, o.Err == ErrChanged && o.Cond:
		c.step(o, lockStep{kind: stepRefuse, op: o}, o.Call, o.Return)
	case o.Err == ErrCapacity && !c.wild(o.Keys[0]):
		c.step(o, lockStep{kind: stepRefuse, op: o}, o.Call, o.Return)
	}
}

// excused reports whether a refusal has a reason that the steps do not show: a request that
// waits, a grant that nobody saw, a kept key, a key that a delay keeps taken.
func (c *component) excused(o *Op) bool {
	for _, u := range c.unknowns {
		if u.Call < o.Return && u.claim().meets(o.claim()) {
			return true
		}
	}
	if o.Err != ErrHeld {
		return c.sticky
	}
	for _, a := range c.changes { // an Upgrade waits before all others
		if a.Kind == Upgrade && a.Call < o.Return && (!a.known() || a.Return > o.Call) {
			return true
		}
	}
	for _, a := range c.ops {
		switch {
		case a == o || a.Kind == SetCapacity || a.Call > o.Return || !a.claim().meets(o.claim()):
		case a.Sticky, a.Delay > 0, a.Outcome == Done && a.Return > o.Call && a.Kind == Acquire,
			a.Outcome == Refused && a.Return > o.Call && a.Kind == Acquire:
			return true
		}
	}
	return false
}

// wild reports whether the capacity of key is not known for certain: a call that sets it had
// an unknown outcome, or left the capacity to the requests, which takes effect once no
// permits are held; or a successor of the cluster may have forgotten it.
func (c *component) wild(key string) bool {
	if c.h.succeeded(c.ops[0].Call, 1<<62) {
		return true
	}
	return slices.ContainsFunc(c.ops, func(o *Op) bool {
		return o.Kind == SetCapacity && o.Keys[0] == key && o.Outcome != Refused && (o.Outcome != Done || o.N == 0)
	})
}

// change adds the step of an Upgrade or a Downgrade.
func (c *component) change(g *granted, o *Op) {
	s := lockStep{kind: stepUp, op: o, grant: g.n, same: o.Token == g.op.Token}
	for _, before := range g.changes { // an Upgrade of an exclusive lock leaves its token
		s.same = s.same || before != o && before.Kind == Upgrade && before.Token == o.Token && before.Call < o.Call
	}
	switch {
	case o.Outcome != Done:
		s.kind = stepEither
	case o.Kind == Downgrade:
		s.kind = stepDown
	}
	c.step(o, s, o.Call, o.Return)
}

// free adds the step in which the grant ends.
func (c *component) free(g *granted) {
	s := lockStep{kind: stepFree, op: g.op, grant: g.n}
	answered := len(g.freed) == g.locks && !g.op.Lazy && !g.op.Sticky
	var called, returned int64
	for _, o := range g.freed {
		called, returned = max(called, o.Call), max(returned, o.Return)
		answered = answered && o.Outcome == Done
	}
	if answered {
		c.step(g.freed[0], s, called, returned)
		return
	}
	from, to := g.valid, c.seenFree(g)
	s.maybe = to == 0
	c.step(g.op, s, from, to) // a to before from stands for none: no order fits
}

// seenFree returns the first moment at which a later grant in conflict has been shown to
// its caller, or 0.
func (c *component) seenFree(g *granted) (at int64) {
	mine := g.claim
	if g.weak {
		mine.mode = Shared
	}
	consider := func(claim claim, token uint64, returned int64) {
		if token > g.token && mine.conflicts(claim) && (at == 0 || returned < at) {
			at = returned
		}
	}
	for _, o := range c.grants {
		if o == g {
			continue
		}
		consider(o.claim, o.op.Token, o.op.Return)
		for _, change := range o.changes {
			if change.Kind == Upgrade && change.Outcome == Done {
				consider(claim{o.claim.keys, Exclusive, o.claim.tree}, change.Token, change.Return)
			}
		}
	}
	return at
}
