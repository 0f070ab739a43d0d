package history

import (
	"fmt"
	"slices"
)

// order finds waiters that were passed: A waited in the queue before B was asked for, both
// were granted, and B first. A request of a higher priority may pass a waiter, and so may a
// request that a HandOver names, Limits.Passes times in all. Requests for several keys or
// trees, readers that do not meet a writer, Sticky ones and keys with a Delay are left to
// the models.
func order(h *History) (found []Violation) {
	byKey := make(map[string][]*Op)
	handed := make(map[string][]*Op)
	delayed := make(map[string]bool)
	keyOf := make(map[string]string)
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.Kind == Acquire || o.Kind == Try:
			if len(o.Keys) == 0 {
				continue
			}
			keyOf[o.ID] = o.Keys[0]
			if o.Delay > 0 {
				delayed[o.Keys[0]] = true
			}
			if o.grants() && len(o.Keys) == 1 && !o.Tree && !o.Sticky {
				byKey[o.Keys[0]] = append(byKey[o.Keys[0]], o)
			}
		case o.Kind == HandOver:
			handed[keyOf[o.Grant]] = append(handed[keyOf[o.Grant]], o)
		}
	}
	most := h.Limits.Passes
	if most == 0 {
		most = 16
	}
	for _, key := range sortedKeys(byKey) {
		ops := byKey[key]
		if delayed[key] {
			continue
		}
		slices.SortStableFunc(ops, func(a, b *Op) int { return compare(a.Token, b.Token) })
		for i, a := range ops {
			if a.Queued == 0 {
				continue
			}
			allowed := 0
			for _, o := range handed[key] {
				if o.Call < a.Return && (o.Return == 0 || o.Return > a.Queued) {
					allowed = most
				}
			}
			found = append(found, passed(ops[:i], a, allowed, most)...)
		}
	}
	return found
}

// passed judges the grants before a's. allowed is how many requests of no higher priority
// may pass, most how many in all.
func passed(before []*Op, a *Op, allowed, most int) (found []Violation) {
	equals, all := 0, 0
	for j := len(before) - 1; j >= 0; j-- {
		b := before[j]
		if b.Return < a.Queued {
			break // granted before a waited, and so were those before b
		}
		if b.Call <= a.Queued || !b.claim().conflicts(a.claim()) && b.mode() != Permits {
			continue
		}
		all++
		if b.Priority <= a.Priority {
			equals++
		}
		if equals > allowed || all > most {
			return []Violation{{
				Check: "order", Key: a.Keys[0], At: b.Return, Until: a.Return, IDs: []string{a.ID, b.ID},
				Text: fmt.Sprintf("%s waited from %s on, and %s, asked for at %s, was granted first, as the %d. to pass (tokens %d and %d)",
					a.ID, seconds(a.Queued), b.ID, seconds(b.Call), all, a.Token, b.Token),
			}}
		}
	}
	return nil
}
