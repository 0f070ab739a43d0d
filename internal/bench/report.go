package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A report is the outcome of a plan.
type report struct {
	plan    plan
	begun   time.Time
	players []*player
	left    map[string]error
	tables  []table
}

// write prints the report, and writes the files that the plan wants.
func (r report) write() error {
	var b bytes.Buffer
	r.markdown(&b)
	if _, err := os.Stdout.Write(b.Bytes()); err != nil {
		return err
	}
	if r.plan.report == "" {
		return nil
	}
	if err := os.WriteFile(r.plan.report, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(r.plan.report, ".md")+".svg", r.chart(), 0o644)
}

func (r report) markdown(w io.Writer) {
	fmt.Fprintf(w, "# Benchmark of %s\n\n", r.begun.Format(time.DateOnly))
	fmt.Fprintf(w, "Machine: %s, %d processors, %s, %s. Command: `%s`.\n\n", processor(), runtime.NumCPU(), kernel(), runtime.Version(), command())
	fmt.Fprintf(w, "All systems up at once, in turns of %v; %d rounds. Ratios are medians of the rounds, with the least and the most in parentheses.\n\n", r.plan.turn, r.plan.rounds)
	for _, pl := range r.players {
		fmt.Fprintf(w, "- **%s** (%s): %s; %s\n", pl.kind.name, pl.kind.class, pl.kind.title, pl.version)
	}
	for _, name := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(w, "- %s was not run: %v\n", name, r.left[name])
	}
	r.ratios(w, "Equal guarantees", durable, durable)
	r.ratios(w, "In memory", memory, durable)
	r.ratios(w, "Against weaker guarantees", memory, weaker)
	r.details(w)
}

// ratios writes a table of wardmote, of one class, against the peers of another.
func (r report) ratios(w io.Writer, title string, ours, theirs class) {
	var us *player
	var peers []*player
	for _, pl := range r.players {
		switch {
		case strings.HasPrefix(pl.kind.name, "wardmote"):
			if pl.kind.class == ours {
				us = pl
			}
		case pl.kind.class == theirs:
			peers = append(peers, pl)
		}
	}
	if us == nil || len(peers) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## %s: %s against peers\n\n| workload |", title, us.kind.title)
	for _, p := range peers {
		fmt.Fprintf(w, " rate / %s | p99 / %s |", p.kind.name, p.kind.name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|---:|", len(peers)))
	for _, t := range r.tables {
		row, some := "| "+t.workload.title+" |", false
		for _, p := range peers {
			a, b := t.samples[us.kind.name], t.samples[p.kind.name]
			if len(a) == 0 || len(b) == 0 {
				row += " - | - |"
				continue
			}
			some = true
			rate := spreadOf(ratios(a, b, sample.rate))
			p99 := spreadOf(ratios(a, b, func(s sample) float64 { return s.P99.Seconds() }))
			row += fmt.Sprintf(" **%s** (%s-%s) | %s (%s-%s) |", digits(rate.median), digits(rate.least), digits(rate.most),
				digits(p99.median), digits(p99.least), digits(p99.most))
		}
		if some {
			fmt.Fprintln(w, row)
		}
	}
}

// details writes the samples of each system. No ratio may be computed from them.
func (r report) details(w io.Writer) {
	fmt.Fprint(w, "\n## Samples\n\nMedians of the rounds; CPU, flushes, entries and bytes are means for one cycle. Fairness is the count of the caller with the fewest cycles, as a share of the mean.\n\n")
	fmt.Fprintln(w, "| workload | system | cycles/s | p50 | p99 | longest | CPU | flushes | entries | written | fairness | stolen |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, t := range r.tables {
		for _, pl := range r.players {
			s := t.samples[pl.kind.name]
			if len(s) == 0 {
				if why := t.missing[pl.kind.name]; why != "" {
					fmt.Fprintf(w, "| %s | %s | %s | | | | | | | | | |\n", t.workload.name, pl.kind.name, why)
				}
				continue
			}
			median := func(f func(sample) float64) float64 {
				var v []float64
				for _, s := range s {
					v = append(v, f(s))
				}
				return spreadOf(v).median
			}
			span := func(f func(sample) time.Duration) time.Duration {
				d := time.Duration(median(func(s sample) float64 { return float64(f(s)) }))
				return d.Round(max(d/1000, 1))
			}
			fmt.Fprintf(w, "| %s | %s | %.0f | %v | %v | %v | %v | %s | %s | %.0f B | %.2f | %.1f %% |\n", t.workload.name, pl.kind.name,
				median(sample.rate),
				span(func(s sample) time.Duration { return s.P50 }),
				span(func(s sample) time.Duration { return s.P99 }),
				span(func(s sample) time.Duration { return s.Longest }),
				time.Duration(perCycle(s, func(s sample) float64 { return float64(s.CPU) })).Round(100*time.Nanosecond),
				digits(perCycle(s, func(s sample) float64 { return float64(s.Flushes) })),
				digits(perCycle(s, func(s sample) float64 { return float64(s.Entries) })),
				perCycle(s, func(s sample) float64 { return float64(s.Written) }),
				median(func(s sample) float64 { return s.Fairness }),
				100*median(func(s sample) float64 { return s.Stolen.Seconds() / s.Elapsed.Seconds() / float64(runtime.NumCPU()) }))
		}
	}
}

// digits prints two significant digits.
func digits(v float64) string {
	switch {
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// command is the command that makes this report again.
func command() string {
	return strings.Join(append([]string{"go run ."}, os.Args[1:]...), " ")
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, model, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	out, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(out))
}
