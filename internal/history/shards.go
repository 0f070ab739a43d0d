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
