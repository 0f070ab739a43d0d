package history

import "fmt"

// shards checks the runs of Spread: no call has two runs of a shard at a time, and once a
// group has settled no shard moves without a cause. A cause is any mark but Calm; the group has
// settled Limits.Settle after the latest. One owner at a time is the holders' matter: each
// run has a Hold.
func shards(h *History) (found []Violation) {
	running := make(map[string]*Run) // by call and key
	var marks []int64
	for _, m := range h.Marks {
		if m.Kind != Calm {
			marks = append(marks, m.At)
		}
	}
	at := 0 // the number of marks up to now
	for i := range h.Runs {
		r := &h.Runs[i]
		if r.Kind != RunShard && r.Kind != RunLead {
			continue
		}
		name := r.Call + " " + r.Key
		if before := running[name]; before != nil && (before.To == 0 || before.To > r.From) {
			found = append(found, Violation{
				Check: "shards", Key: r.Key, At: r.From, IDs: []string{before.ID, r.ID},
				Text: fmt.Sprintf("%s runs it twice at a time", r.Client),
			})
		}
		running[name] = r
		for at < len(marks) && marks[at] <= r.From {
			at++
		}
		if h.Limits.Settle > 0 && r.Kind == RunShard && at > 0 && r.From > marks[at-1]+h.Limits.Settle {
			found = append(found, Violation{
				Check: "shards", Key: r.Key, At: r.From, IDs: []string{r.ID},
				Text: fmt.Sprintf("moved to %s %s after the latest cause", r.Client, seconds(r.From-marks[at-1])),
			})
		}
	}
	return found
}

// resized checks the numbers of shards of each group: works of two numbers never overlap by
// their holders' eyes, and no work begins under a number that a Resize has replaced for
// certain.
func resized(h *History) (found []Violation) {
	told := make(map[string]int64) // by run: the last word that its shard is held
	for i := range h.Holds {
		x := &h.Holds[i]
		told[x.Op] = max(told[x.Op], x.Valid)
	}
	resizes := make(map[string][]*Op)
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == Resize && o.Outcome != Refused {
			resizes[o.Keys[0]] = append(resizes[o.Keys[0]], o)
		}
	}
	last := make(map[string]map[int]*Run) // by group and number: the run with the latest word so far
	for i := range h.Runs {
		r := &h.Runs[i]
		if r.Kind != RunShard || r.Of == 0 {
			continue
		}
		group := root(r.Key)
		if last[group] == nil {
			last[group] = make(map[int]*Run)
		}
		for _, n := range sortedKeys(last[group]) {
			if x := last[group][n]; n != r.Of && told[x.ID] > r.From {
				found = append(found, Violation{
					Check: "resize", Key: r.Key, At: r.From, Until: told[x.ID], IDs: []string{x.ID, r.ID},
					Text: fmt.Sprintf("%s works on shard %s of %d, %s before the work of %s on %s of %d was told for the last time that it holds",
						r.Client, r.Key, r.Of, seconds(told[x.ID]-r.From), x.Client, x.Key, n),
				})
			}
		}
		if x := last[group][r.Of]; x == nil || told[x.ID] < told[r.ID] {
			last[group][r.Of] = r
		}
		if o := replaced(r, resizes[group]); o != nil && told[r.ID] > r.From && !h.succeeded(o.Call, r.From) {
			found = append(found, Violation{
				Check: "resize", Key: r.Key, At: r.From, IDs: []string{r.ID, o.ID},
				Text: fmt.Sprintf("%s works on one of %d shards after %s had been told that there are %d", r.Client, r.Of, o.Client, o.N),
			})
		}
	}
	return found
}

// replaced returns a Resize by which the number of the run's group was another one for certain
// when the run began; or nil.
func replaced(r *Run, resizes []*Op) *Op {
	var by *Op
	for _, o := range resizes {
		if o.Outcome == Done && o.Return < r.From && o.N != r.Of && (by == nil || o.Call > by.Call) {
			by = o
		}
	}
	if by == nil {
		return nil
	}
	for _, o := range resizes {
		if o.N == r.Of && o.Call < r.From && (o.Outcome != Done || o.Return > by.Call) {
			return nil // may have taken effect later
		}
	}
	return by
}
