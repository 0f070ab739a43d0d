package history

import (
	"fmt"
	"slices"
)

// lively checks that every call has returned within Limits.Live of the last Heal, or of the
// call if that was later.
func lively(h *History) (found []Violation) {
	if h.Limits.Live == 0 {
		return nil
	}
	var calm int64
	for _, m := range h.Marks {
		if m.Kind == Heal {
			calm = max(calm, m.At)
		}
	}
	if calm == 0 {
		return nil
	}
	stops, end := newStops(h), h.end()
	for i := range h.Ops {
		o := &h.Ops[i]
		due := max(calm, o.Call) + h.Limits.Live
		if killed := stops.killed[o.Process]; killed > 0 && killed <= due || due >= end {
			continue
		}
		if o.Return != 0 && o.Return <= due {
			continue
		}
		how := "and has not returned"
		if o.Return != 0 {
			how = fmt.Sprintf("and returned %s later", seconds(o.Return-max(calm, o.Call)))
		}
		found = append(found, Violation{
			Check: "liveness", Key: o.key(), At: due, Until: o.Return, IDs: []string{o.ID},
			Text: fmt.Sprintf("%s of %s was called at %s, the last fault was over at %s, %s (%s)",
				o.Kind, o.Client, seconds(o.Call), seconds(calm), how, o.Text),
		})
	}
	return found
}

// served checks the calm from the last Heal to the mark Calm: each of Limits.Keys was granted by
// a call that began in the calm, and each of Limits.Works has an owner, by a run that began then
// or lasted from the Heal to the Calm.
func served(h *History) (found []Violation) {
	var heal, calm int64
	for _, m := range h.Marks {
		switch m.Kind {
		case Heal:
			heal, calm = m.At, 0
		case Calm:
			calm = m.At
		}
	}
	if calm == 0 {
		return nil
	}
	granted, owned := make(map[string]bool), make(map[string]bool)
	for i := range h.Ops {
		if o := &h.Ops[i]; o.grants() && o.Call > heal {
			for _, key := range o.Keys {
				granted[key] = true
			}
		}
	}
	stops := newStops(h)
	for i := range h.Runs {
		r := &h.Runs[i]
		killed := stops.killed[r.Process]
		open := r.To == 0 && (killed == 0 || killed >= calm)
		if r.From > heal || open || r.To >= calm {
			owned[r.Key] = true
		}
	}
	missing := func(keys []string, have map[string]bool, what string) {
		for _, key := range slices.Sorted(slices.Values(keys)) {
			if !have[key] {
				found = append(found, Violation{
					Check: "liveness", Key: key, At: calm,
					Text: fmt.Sprintf("the last fault was over at %s, and %s by %s", seconds(heal), what, seconds(calm)),
				})
			}
		}
	}
	missing(h.Limits.Keys, granted, "nobody was granted it")
	missing(h.Limits.Works, owned, "nobody works on it")
	return found
}

func (o *Op) key() string {
	if len(o.Keys) == 0 {
		return ""
	}
	return o.Keys[0]
}

// clean finds what is left at the end.
func clean(h *History) (found []Violation) {
	for _, x := range h.Left {
		if x.N > x.Most {
			found = append(found, Violation{Check: "clean", Key: x.What, At: h.end(), Text: fmt.Sprintf("%d are left, %d may be %s", x.N, x.Most, x.Text)})
		}
	}
	return found
}
