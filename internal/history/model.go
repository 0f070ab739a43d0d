package history

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// stepKind is the kind of a step of the model.
type stepKind uint8

const (
	stepTake     stepKind = iota // a request is granted
	stepRefuse                   // a request is refused, for the reason op.Err
	stepFree                     // a grant ends; maybe: or does not
	stepUp                       // a shared grant becomes exclusive
	stepDown                     // an exclusive grant becomes shared
	stepEither                   // a grant may be either from now on
	stepCapacity                 // a capacity is set
)

// A lockStep is one step. Grant is the number of the grant concerned.
type lockStep struct {
	kind  stepKind
	op    *Op
	grant int
	maybe bool
	same  bool // stepUp: the grant has this token already
}

func (s lockStep) String() string {
	o := s.op
	switch s.kind {
	case stepTake:
		return fmt.Sprintf("grant of %v (%s, token %d)", o.Keys, o.mode(), o.Token)
	case stepRefuse:
		return fmt.Sprintf("refusal of %v (%s): %s", o.Keys, o.mode(), o.Err)
	case stepFree:
		return fmt.Sprintf("end of token %d of %v", o.Token, o.Keys)
	case stepUp, stepDown, stepEither:
		return fmt.Sprintf("%s, token %d", o.Kind, o.Token)
	}
	return fmt.Sprintf("capacity %d of %v", o.N, o.Keys)
}

// either is the mode of a grant that is exclusive or shared.
const either Mode = "x or s"

// A lockState is the grants in force, by number, the last tokens and the set capacities.
// A state is never changed.
type lockState struct {
	grants []inForce
	last   uint64            // over all keys; 0 if Sticky locks have tokens among them
	tokens map[string]uint64 // by key
	caps   map[string]int    // by key, as SetCapacity set it
}

type inForce struct {
	n    int
	mode Mode
}

// lockModel returns the model of the keys of a component. See locking.go for the steps.
func lockModel(c *component) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{&lockState{}} },
		Step: func(state, input, _ any) []any {
			s, step := state.(*lockState), input.(lockStep)
			switch step.kind {
			case stepTake:
				return c.take(s, step)
			case stepRefuse:
				if c.mayRefuse(s, step.op) {
					return []any{s}
				}
			case stepFree:
				at := s.find(step.grant)
				switch {
				case at >= 0 && step.maybe:
					return []any{s, s.without(at)}
				case at >= 0:
					return []any{s.without(at)}
				case step.maybe:
					return []any{s}
				}
			case stepUp, stepDown, stepEither:
				return c.turn(s, step)
			case stepCapacity:
				next := *s
				next.caps = with(s.caps, step.op.Keys[0], step.op.N)
				return []any{&next}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a.(*lockState).equal(b.(*lockState)) },
	}
	return m.ToModel()
}

func (s *lockState) find(grant int) int {
	return slices.IndexFunc(s.grants, func(g inForce) bool { return g.n == grant })
}

func (s *lockState) without(at int) *lockState {
	next := *s
	next.grants = slices.Delete(slices.Clone(s.grants), at, at+1)
	return &next
}

func (s *lockState) equal(o *lockState) bool {
	if s == o {
		return true
	}
	if !slices.Equal(s.grants, o.grants) || s.last != o.last || len(s.tokens) != len(o.tokens) || len(s.caps) != len(o.caps) {
		return false
	}
	for k, v := range s.tokens {
		if o.tokens[k] != v {
			return false
		}
	}
	for k, v := range s.caps {
		if o.caps[k] != v {
			return false
		}
	}
	return true
}

// with returns m with one more value.
func with[V any](m map[string]V, key string, v V) map[string]V {
	next := make(map[string]V, len(m)+1)
	for k, old := range m {
		next[k] = old
	}
	next[key] = v
	return next
}

// take grants, if nothing is in the way and the token is above the earlier ones.
func (c *component) take(s *lockState, step lockStep) []any {
	o := step.op
	if o.Token <= s.last || !c.isFree(s, o, either) {
		return nil
	}
	next := *s
	for _, k := range o.Keys {
		if o.Token <= s.tokens[k] || o.Cond && s.tokens[k] > o.If {
			return nil
		}
		next.tokens = with(next.tokens, k, o.Token)
	}
	if !c.sticky {
		next.last = o.Token
	}
	at, _ := slices.BinarySearchFunc(s.grants, step.grant, func(g inForce, n int) int { return compare(g.n, n) })
	next.grants = slices.Insert(slices.Clone(s.grants), at, inForce{step.grant, o.mode()})
	return []any{&next}
}

// turn changes the mode of a grant.
func (c *component) turn(s *lockState, step lockStep) []any {
	at := s.find(step.grant)
	if at < 0 {
		if step.kind == stepEither {
			return []any{s} // lost meanwhile
		}
		return nil
	}
	next := *s
	next.grants = slices.Clone(s.grants)
	switch step.kind {
	case stepDown:
		next.grants[at].mode = Shared
	case stepEither:
		next.grants[at].mode = either
	case stepUp:
		o := c.grants[step.grant]
		if next.grants[at].mode = Exclusive; s.grants[at].mode == Exclusive {
			break // exclusive before: nothing changes
		}
		for i, other := range s.grants {
			if i != at && c.grants[other.n].claim.meets(o.claim) && other.mode != either {
				return nil
			}
		}
		if step.op.Token > 0 && !step.same {
			if step.op.Token <= s.last {
				return nil
			}
			if !c.sticky {
				next.last = step.op.Token
			}
			for _, k := range o.claim.keys {
				next.tokens = with(next.tokens, k, step.op.Token)
			}
		}
	}
	return []any{&next}
}

// isFree reports whether nothing in force is in the way of o. A grant of the mode ignore is
// not in the way.
func (c *component) isFree(s *lockState, o *Op, ignore Mode) bool {
	used := o.N
	for _, g := range s.grants {
		claim := c.grants[g.n].claim
		if g.mode == ignore && o.mode() != Exclusive {
			continue
		}
		if claim.mode = g.mode; g.mode == either {
			claim.mode = Exclusive
		}
		if claim.conflicts(o.claim()) {
			return false
		}
		if g.mode == Permits && o.mode() == Permits && claim.keys[0] == o.Keys[0] {
			used += c.grants[g.n].op.N
		}
	}
	if o.mode() != Permits {
		return true
	}
	capacity, known := c.capacity(s, o)
	return !known || used <= capacity
}

// capacity returns the capacity for a request.
func (c *component) capacity(s *lockState, o *Op) (n int, known bool) {
	if c.wild(o.Keys[0]) {
		return 0, false
	}
	if n = s.caps[o.Keys[0]]; n == 0 {
		n = o.Of
	}
	return n, n > 0
}

// mayRefuse reports whether the table may refuse o for its reason.
func (c *component) mayRefuse(s *lockState, o *Op) bool {
	switch o.Err {
	case ErrChanged:
		return slices.ContainsFunc(o.Keys, func(k string) bool { return s.tokens[k] > o.If })
	case ErrCapacity:
		n, known := c.capacity(s, o)
		return !known || s.caps[o.Keys[0]] == 0 || o.N > n
	}
	if o.mode() == Permits {
		if _, known := c.capacity(s, o); !known {
			return true
		}
	}
	return !c.isFree(s, o, "")
}
