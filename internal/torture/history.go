package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A job is the order for a run.
type job struct {
	Suite   string `json:"suite"`
	Target  string `json:"target,omitempty"`  // of a fuzz run
	Package string `json:"package,omitempty"` // of the target
	Seed    uint64 `json:"seed"`
	Plan    string `json:"plan,omitempty"`  // beside the seed, of a failure in internal/sim
	Again   int    `json:"again,omitempty"` // 1, 2 or 3: the failure of Of is tried again
	Of      string `json:"of,omitempty"`    // the ID of the failed run
}

// A run is a finished job: a line of runs.jsonl.
type run struct {
	ID     string `json:"id"`
	Commit string `json:"commit"`
	job
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	CPU     float64           `json:"cpu"` // seconds of CPU time
	Failed  bool              `json:"failed"`
	Late    bool              `json:"late,omitempty"`   // ended because its time was over
	Output  string            `json:"output,omitempty"` // the directory of a failed run, below failures
	Results []json.RawMessage `json:"results,omitempty"`
}

// againTimes is how often a failure is tried again.
const againTimes = 3

// readRuns reads lines. The last line may be cut off by a crash, and is passed over then.
func readRuns(from io.Reader) (runs []run, err error) {
	r := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return runs, nil // without its newline a line is not whole
		}
		if err != nil {
			return nil, err
		}
		var one run
		if err := json.Unmarshal(line, &one); err != nil {
			if rest, _ := r.Peek(1); len(rest) == 0 {
				return runs, nil
			}
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		runs = append(runs, one)
	}
}

// A result is a suite's line about a run, or about a part of a run. The suites write some
// fields in several forms.
type result struct {
	Suite      string  `json:"suite"`
	Seed       uint64  `json:"seed"`
	Hours      float64 `json:"hours"`        // simulated
	Wall       float64 `json:"wall_seconds"` // of real processes
	Grants     int     `json:"grants"`
	Faults     counted `json:"faults"`
	Coverage   []string
	Uncovered  []string
	Violations number `json:"violations"`
	Void       bool   `json:"void"`
	Plan       string `json:"plan"` // with the seed: what was played

	// Of a mutant.
	Mutant   string
	Promise  string
	Survived bool
	Found    json.RawMessage
}

// A found is the find of a suite: a mutant.
type found struct {
	By      string  `json:"by"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
}

// counted counts by kind. A single number counts faults of no kind.
type counted map[string]int

func (c *counted) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil {
		*c = counted{"": n}
		return nil
	}
	return json.Unmarshal(b, (*map[string]int)(c))
}

// number is a number, or the length of a list.
type number int

func (n *number) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) {
		var list []json.RawMessage
		err := json.Unmarshal(b, &list)
		*n = number(len(list))
		return err
	}
	return json.Unmarshal(b, (*int)(n))
}

// parse reads the results of a run, and passes over other lines.
func (r *run) parse() (results []result) {
	for _, raw := range r.Results {
		var one result
		if json.Unmarshal(raw, &one) == nil {
			results = append(results, one)
		}
	}
	return results
}

// seedOf is the seed to try again, and its plan: of the first part with violations, if there
// is one.
func (r *run) seedOf() (seed uint64, plan string) {
	for _, one := range r.parse() {
		if one.Violations > 0 && one.Seed != 0 {
			return one.Seed, one.Plan
		}
	}
	return r.Seed, r.Plan
}
