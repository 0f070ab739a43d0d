package history

import (
	"fmt"
	"slices"
)

// A seen is a token as a call returned it.
type seen struct {
	op     *Op
	token  uint64
	sticky bool
}

// tokens checks the numbers of grants: no number twice, rising by key in the order of the
// log, and rising over calls that followed each other. The tokens of Sticky locks rise by
// key only.
func tokens(h *History) (found []Violation) {
	var all []seen
	first := make(map[uint64]*Op)
	grants := make(map[string]map[uint64]bool) // the tokens of each grant so far
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Outcome != Done || o.Token == 0 {
			continue
		}
		if !o.grants() && o.Kind != Upgrade {
			continue
		}
		grant := o.ID
		if o.Kind == Upgrade {
			grant = o.Grant
		}
		if grants[grant][o.Token] {
			continue // an Upgrade of a lock that was exclusive before
		}
		if grants[grant] == nil {
			grants[grant] = make(map[uint64]bool)
		}
		grants[grant][o.Token] = true
		if before := first[o.Token]; before != nil && before.Grant != o.ID && o.Grant != before.ID {
			found = append(found, Violation{
				Check: "tokens", Key: o.Keys[0], At: o.Return, IDs: []string{before.ID, o.ID},
				Text: fmt.Sprintf("token %d was given to %s and to %s", o.Token, before.Client, o.Client),
			})
		}
		first[o.Token] = o
		all = append(all, seen{o, o.Token, o.Sticky})
	}
	byKey := make(map[string][]seen)
	var global []seen
	for _, s := range all {
		for _, k := range s.op.Keys {
			byKey[k] = append(byKey[k], s)
		}
		if !s.sticky {
			global = append(global, s)
		}
	}
	for _, k := range sortedKeys(byKey) {
		found = append(found, rising(k, byKey[k])...)
	}
	found = append(found, rising("", global)...)
	return append(found, committedTokens(h)...)
}

// rising finds a call that began after another one had returned a larger token.
func rising(key string, all []seen) (found []Violation) {
	returned := slices.Clone(all)
	slices.SortFunc(returned, func(a, b seen) int { return compare(a.op.Return, b.op.Return) })
	slices.SortFunc(all, func(a, b seen) int { return compare(a.op.Call, b.op.Call) })
	var top seen
	next := 0
	for _, s := range all {
		for ; next < len(returned) && returned[next].op.Return < s.op.Call; next++ {
			if returned[next].token > top.token {
				top = returned[next]
			}
		}
		if top.op == nil || top.token <= s.token || top.op == s.op {
			continue
		}
		found = append(found, Violation{
			Check: "tokens", Key: key, At: s.op.Return, IDs: []string{top.op.ID, s.op.ID},
			Text: fmt.Sprintf("%s was given token %d for %v by a call that began after token %d had been given to %s",
				s.op.Client, s.token, s.op.Keys, top.token, top.op.Client),
		})
	}
	return found
}

// committedTokens checks the grants of the log.
func committedTokens(h *History) (found []Violation) {
	last := make(map[string]uint64)
	for i := range h.Facts {
		f := &h.Facts[i]
		if f.Kind != Granted && f.Kind != Extended {
			continue
		}
		for _, k := range f.Keys {
			if f.Kind == Granted && f.Token <= last[k] {
				found = append(found, Violation{
					Check: "tokens", Key: k, At: f.At,
					Text: fmt.Sprintf("entry %d grants token %d after token %d", f.Index, f.Token, last[k]),
				})
			}
			last[k] = max(last[k], f.Token, f.Last)
		}
	}
	return found
}
