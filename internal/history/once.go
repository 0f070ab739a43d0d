package history

import "fmt"

// once checks that the function of each id ran at most once, and that all callers were told
// the result of that run. A caller is told that the run is unfinished only if the run did
// not end in time, or its result could not be stored.
func once(h *History) (found []Violation) {
	forgotten := forgottenIDs(h)
	runs := make(map[string][]*Run)
	for i := range h.Runs {
		if r := &h.Runs[i]; r.Kind == RunOnce && !forgotten[r.Key] {
			runs[r.Key] = append(runs[r.Key], r)
		}
	}
	for _, id := range sortedKeys(runs) {
		if all := runs[id]; len(all) > 1 {
			found = append(found, Violation{
				Check: "once", Key: id, At: all[1].From, IDs: []string{all[0].ID, all[1].ID},
				Text: fmt.Sprintf("ran %d times, by %s and again by %s", len(all), all[0].Client, all[1].Client),
			})
		}
	}
	unfinished := make(map[string]*Op) // the first caller that was told so
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != Once || forgotten[o.Keys[0]] {
			continue
		}
		id := o.Keys[0]
		wrong := func(format string, args ...any) {
			found = append(found, Violation{Check: "once", Key: id, At: o.Return, IDs: []string{o.ID}, Text: fmt.Sprintf(format, args...)})
		}
		var run *Run
		if len(runs[id]) > 0 {
			run = runs[id][0]
		}
		switch {
		case o.Err == ErrUnfinished:
			if before := unfinished[id]; before == nil || o.Return < before.Return {
				unfinished[id] = o
			}
		case o.Outcome == Done && o.Return > 0:
			switch {
			case run == nil || run.From > o.Return:
				wrong("%s was told the result %q of a run that had not begun", o.Client, o.Value)
			case run.Failed || o.Value != run.Result:
				wrong("%s was told %q, and the run returned %q (failed: %v)", o.Client, o.Value, run.Result, run.Failed)
			case !o.Ran && run.To == 0:
				wrong("%s was told the result of a run that has not ended", o.Client)
			}
		case o.Err == ErrOnce && !o.Ran:
			if run == nil || !run.Failed {
				wrong("%s was told of a failed run, and none has failed", o.Client)
			}
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != Once || o.Ran || o.Outcome != Done || forgotten[o.Keys[0]] {
			continue
		}
		if u := unfinished[o.Keys[0]]; u != nil && u.Return < o.Call {
			found = append(found, Violation{
				Check: "once", Key: o.Keys[0], At: o.Return, IDs: []string{u.ID, o.ID},
				Text: fmt.Sprintf("%s was told a result after %s had been told that there is none", o.Client, u.Client),
			})
		}
	}
	return found
}

// forgottenIDs returns the ids in use before and after a succession, which may have
// forgotten them.
func forgottenIDs(h *History) map[string]bool {
	spans := make(map[string]*span)
	add := func(id string, from, to int64) {
		if spans[id] == nil {
			spans[id] = &span{}
		}
		spans[id].add(from, to)
	}
	for i := range h.Runs {
		if r := &h.Runs[i]; r.Kind == RunOnce {
			add(r.Key, r.From, r.To)
		}
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == Once {
			add(o.Keys[0], o.Call, o.Return)
		}
	}
	forgotten := make(map[string]bool)
	for id, s := range spans {
		forgotten[id] = h.succeeded(s.from, s.to)
	}
	return forgotten
}
