//go:build linux

package storm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/history"
)

// toldWithin bounds the time from the next grant until the context of a lost lock has
// ended, in a process that runs; of a stopped process, from SIGCONT.
const toldWithin = time.Second

// leastRate is the least number of operations a second of a run that counts.
const leastRate = 50

// Marks of standstills by the kernel, beside history.Freeze and history.Thaw.
const (
	starved = "starved" // a tenth of a CPU
	fed     = "fed"
	stalled = "stalled" // told by the process afterwards: Text has the nanoseconds
)

// applied marks an entry of the log as a voter has applied it: Text has the index and a sum.
const applied = "applied"

// result is a finished schedule, as a line of JSON.
type result struct {
	Suite       string            `json:"suite"`
	Seed        uint64            `json:"seed"`
	Town        string            `json:"town"`
	WallSeconds float64           `json:"wall_seconds"`
	Processes   int               `json:"processes"`
	Ops         int               `json:"ops"`
	OpsASecond  float64           `json:"ops_a_second"`
	Grants      int               `json:"grants"`
	Waits       int               `json:"waits"`            // grants of requests that are known to have waited
	Entries     int               `json:"entries_compared"` // of the log, between voters
	Lost        int               `json:"lost_holds"`
	Faults      map[string]int    `json:"faults"`
	Idle        map[string]int    `json:"idle,omitempty"`    // faults of disks that hit no write, and do not count
	Missing     map[string]string `json:"missing,omitempty"` // kinds that this host cannot make, and why
	Deaths      int               `json:"deaths,omitempty"`  // processes that ended by themselves
	Served      float64           `json:"served_seconds"`    // from the end of the faults until every member was granted a key
	Rescued     bool              `json:"rescued,omitempty"` // a lost majority in memory, restarted
	Fenced      counts            `json:"fenced"`
	Checked     counts            `json:"checked"`
	Plain       counts            `json:"plain"`
	Stopped     overlaps          `json:"stopped"` // overlaps of stopped holders
	Running     overlaps          `json:"running"` // and of those that ran, up to the wake of a goroutine
	Undecided   int               `json:"undecided,omitempty"`
	Violations  int               `json:"violations"`
	Void        bool              `json:"void"`
	Found       []string          `json:"found,omitempty"`

	from, to int64          // of the faults
	limits   history.Limits // of the calm after them
}

// overlaps counts the contexts of holds that ended after the next grant in conflict.
type overlaps struct {
	N       int     `json:"n"`
	Longest float64 `json:"longest_ms"`
	Told    float64 `json:"told_ms"` // the longest time after SIGCONT, or after the grant
	lines   []string
}

// read reads the recordings of a town.
func readAll(base string) (history.History, error) {
	names, err := filepath.Glob(filepath.Join(base, "*.jsonl"))
	if err != nil {
		return history.History{}, err
	}
	var files []io.Reader
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return history.History{}, err
		}
		defer f.Close()
		files = append(files, f)
	}
	return history.Read(files...)
}

// window is a standstill of a process, or nearly one.
type window struct{ from, to int64 }

// standstills returns the standstills of each process, overlapping ones merged. A starved
// or stalled process counts as standing still.
func standstills(h *history.History) map[string][]window {
	all := make(map[string][]window)
	open := make(map[string]int64)
	for _, m := range h.Marks {
		switch m.Kind {
		case history.Freeze, starved:
			open[m.Kind+m.Who] = m.At
		case history.Thaw, fed:
			begins := map[string]string{history.Thaw: history.Freeze, fed: starved}[m.Kind]
			all[m.Who] = append(all[m.Who], window{open[begins+m.Who], m.At})
		case stalled:
			d, _ := strconv.ParseInt(m.Text, 10, 64)
			all[m.Who] = append(all[m.Who], window{m.At - d - int64(100*time.Millisecond), m.At})
		}
	}
	for who, ws := range all {
		slices.SortFunc(ws, func(a, b window) int { return cmp.Compare(a.from, b.from) })
		merged := ws[:1]
		for _, w := range ws[1:] {
			if last := &merged[len(merged)-1]; w.from <= last.to {
				last.to = max(last.to, w.to)
			} else {
				merged = append(merged, w)
			}
		}
		all[who] = merged
	}
	return all
}

// judge checks the history and fills the result.
func judge(h history.History, r *result) []history.Violation {
	still := standstills(&h)
	var marks []history.Mark
	for _, m := range h.Marks {
		if m.Kind != history.Freeze && m.Kind != history.Thaw && m.Kind != applied { // no shard moves because of an entry
			marks = append(marks, m)
		}
	}
	for who, ws := range still {
		for _, w := range ws {
			marks = append(marks, history.Mark{At: w.from, Kind: history.Freeze, Who: who}, history.Mark{At: w.to, Kind: history.Thaw, Who: who})
		}
	}
	slices.SortStableFunc(marks, func(a, b history.Mark) int { return cmp.Compare(a.At, b.At) })
	h.Marks = marks
	h.Limits = r.limits
	h.Limits.Told = int64(toldWithin)
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Outcome == history.Done && !o.Shared && (o.Kind == history.Acquire || o.Kind == history.Try) {
			r.Grants++
			if o.Queued != 0 {
				r.Waits++
			}
		}
	}
	r.Ops = len(h.Ops)
	under := 0 // faults
	for i := range h.Ops {
		if at := h.Ops[i].Call; r.from <= at && at < r.to {
			under++
		}
	}
	r.OpsASecond = float64(under) / time.Duration(max(r.to-r.from, 1)).Seconds()
	for i := range h.Holds {
		if h.Holds[i].How == history.Lost {
			r.Lost++
		}
	}
	r.Stopped, r.Running = listOverlaps(&h, still)
	found, made := history.Judge(h)
	r.Undecided = made.Undecided
	return found
}

// compareLogs compares the entries that the voters of one cluster have applied.
func compareLogs(h *history.History, r *result) (broken []string) {
	first := make(map[string]history.Mark)
	for _, m := range h.Marks {
		if m.Kind != applied {
			continue
		}
		index, sum, _ := strings.Cut(m.Text, " ")
		before, known := first[index]
		switch {
		case !known:
			first[index] = m
		case before.Text != index+" "+sum:
			broken = append(broken, fmt.Sprintf("replicas: entry %s is %s at %s and %s at %s", index, before.Text, before.Who, m.Text, m.Who))
		default:
			r.Entries++
		}
	}
	return broken
}

// listOverlaps lists the holds that ended, in the eyes of a waiting goroutine, after the
// next grant in conflict had returned: of processes with a standstill between, and of the
// others.
func listOverlaps(h *history.History, still map[string][]window) (stopped, running overlaps) {
	byKey := make(map[string][]*history.Hold)
	for i := range h.Holds {
		for _, k := range h.Holds[i].Keys {
			byKey[k] = append(byKey[k], &h.Holds[i])
		}
	}
	for key, holds := range byKey {
		slices.SortStableFunc(holds, func(a, b *history.Hold) int { return cmp.Compare(a.Token, b.Token) })
		for i, x := range holds {
			if x.How == history.Released || x.Done == 0 {
				continue
			}
			at := slices.IndexFunc(holds[i+1:], func(y *history.Hold) bool {
				return y.Token > x.Token && y.Op != x.Op && (exclusive(x) || exclusive(y))
			})
			if at < 0 || holds[i+1+at].From >= x.Done {
				continue
			}
			y, kind, from := holds[i+1+at], &running, holds[i+1+at].From
			for _, w := range still[x.Process] {
				if w.from < x.Done && w.to > y.From {
					kind, from = &stopped, max(from, w.to)
				}
			}
			ms := func(d int64) float64 { return max(0, float64(d)/1e6) }
			kind.N++
			kind.Longest = max(kind.Longest, ms(x.Done-y.From))
			kind.Told = max(kind.Told, ms(x.Done-from))
			kind.lines = append(kind.lines, fmt.Sprintf("%s: token %d of %s ended %.1f ms after token %d of %s was granted, %.1f ms after its process ran",
				key, x.Token, x.Process, ms(x.Done-y.From), y.Token, y.Process, ms(x.Done-from)))
		}
	}
	return stopped, running
}

func exclusive(h *history.Hold) bool { return h.Mode == "" || h.Mode == history.Exclusive }

// publish appends the line of a result to the file named by WARDMOTE_RESULTS.
func (r *result) publish() error {
	path := os.Getenv("WARDMOTE_RESULTS")
	if path == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(text, '\n'))
	return err
}
