package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A report is the outcome of a plan.
type report struct {
	plan    plan
	begun   time.Time
	commit  string // of wardmote
	systems []running
	left    map[string]error
	tables  []table
}

// running is a system that was up in a setting.
type running struct {
	in      setting
	kind    kind
	version string
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
	return os.WriteFile(r.chartFile(), r.chart(), 0o644)
}

func (r report) chartFile() string { return strings.TrimSuffix(r.plan.report, ".md") + ".svg" }

func (r report) markdown(w io.Writer) {
	fmt.Fprintf(w, "# Benchmark of %s\n\n", r.begun.UTC().Format(time.DateOnly))
	fmt.Fprintln(w, "This page is written by the program `internal/bench`, whose package comment has the method. [Performance](performance.md) explains the figures.")
	fmt.Fprintf(w, "\n- Machine: %s, %d processors, %s, %s.\n", processor(), runtime.NumCPU(), kernel(), runtime.Version())
	fmt.Fprintf(w, "- Wardmote: %s.\n", r.commit)
	fmt.Fprintf(w, "- Command, in `internal/bench`: `%s`.\n", command(os.Args[1:]))
	fmt.Fprintf(w, "- All systems of a setting are up at once, and work in turns of %v; %d rounds. Ratios are medians of the rounds' ratios, with the least and the most in parentheses.\n", r.plan.turn, r.plan.rounds)
	if others, stolen, ok := r.disturbed(); ok {
		fmt.Fprintf(w, "- During a median turn other programs, the idle systems included, had %.0f %% of the processors, and the hypervisor took %.1f %%.", 100*others, 100*stolen)
		if others > quiet || stolen > quiet {
			fmt.Fprintf(w, " **The machine was not quiet:** figures of another run will differ.")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\n| system | setting | class | version |\n|---|---|---|---|\n")
	for _, s := range r.systems {
		version := s.version
		if s.kind.ours {
			version = r.commit
		}
		fmt.Fprintf(w, "| %s: %s | %s | %s | %s |\n", s.kind.name, s.kind.title, s.in, s.kind.class, version)
	}
	fmt.Fprint(w, "\nClasses: a lock of a *durable* system survives the loss of power of all members; of a *boot* system the end of all processes, and the loss of a minority of the hosts; of a *memory* system the loss of a minority of the members. A lock of a *weaker* system is lost, or held twice, with the loss of one server. Only systems of one class are equals.\n")
	for _, name := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(w, "\n%s was not run: %v.\n", name, r.left[name])
	}
	if absent := r.absent(); absent != "" {
		fmt.Fprintf(w, "\nNot in this run: %s.\n", absent)
	}
	r.short(w)
	r.aims(w)
	if r.plan.report != "" {
		fmt.Fprintf(w, "\n![Rates of wardmote divided by those of its peers](%s)\n", filepath.Base(r.chartFile()))
	}
	for _, in := range settings {
		for _, c := range comparisons {
			r.ratios(w, in, c)
		}
	}
	r.fairness(w)
	r.events(w)
	r.details(w)
}

// quiet is the share of the processors that others may have on a quiet machine.
const quiet = 0.15

// disturbed returns the median shares of the processors that others had, and that the
// hypervisor took.
func (r report) disturbed() (others, stolen float64, ok bool) {
	var o, s []float64
	for _, t := range r.tables {
		for _, samples := range t.samples {
			for _, one := range samples {
				if one.Elapsed > 0 {
					o, s = append(o, one.Others), append(s, one.stolenShare())
				}
			}
		}
	}
	if len(o) == 0 {
		return 0, 0, false
	}
	return spreadOf(o).median, spreadOf(s).median, true
}

// absent names the workloads that the plan leaves out.
func (r report) absent() string {
	var out []string
	for _, w := range workloads {
		if _, ok := r.table(w.name); !ok {
			out = append(out, w.name+" ("+w.title+")")
		}
	}
	return strings.Join(out, "; ")
}

func (r report) table(name string) (table, bool) {
	i := slices.IndexFunc(r.tables, func(t table) bool { return t.workload.name == name })
	if i < 0 {
		return table{}, false
	}
	return r.tables[i], true
}

// short writes the figures that the README has too, between two marks.
func (r report) short(w io.Writer) {
	rows := []struct {
		title, workload, peer string
		quantity              quantity
	}{
		{"etcd, 1 caller", "own/1", "etcd", rate},
		{"etcd, 1 caller, `Lazy`", "lazy/1", "etcd", rate},
		{"etcd, 256 callers", "own/256", "etcd", rate},
		{"etcd, 16 callers that want one key", "hot/16", "etcd", rate},
		{"ZooKeeper, 256 callers", "own/256", "zookeeper", rate},
		{"Redis, one server in memory, which promises less; 256 callers", "own/256", "redis", rate},
		{"p99 of an acquire at half of etcd's capacity / etcd's: less is better", "open/half", "etcd", p99},
		{"`Sticky`: the same key again, median", "again/1", "", middle},
	}
	fmt.Fprint(w, "\n## In short\n\n<!-- figures -->\n| cycles of acquire and release, wardmote / peer | `Dir` | `SyncBoot` | in memory |\n|---|---:|---:|---:|\n")
	for _, row := range rows {
		line, some := "| "+row.title+" |", false
		for _, ours := range []string{"wardmote", "wardmote-boot", "wardmote-memory"} {
			a := aim{workload: row.workload, ours: ours, peer: row.peer, quantity: row.quantity}
			s, ok := a.measured(r.tables)
			if row.peer == "redis" && ours != "wardmote-memory" {
				ok = false // compared with the class that is nearest
			}
			if !ok {
				line += " - |"
				continue
			}
			some = true
			if a.peer == "" {
				line += " " + a.text(s.median) + " |"
			} else {
				line += " " + digits(s.median) + "x |"
			}
		}
		if some {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintf(w, "\nMedians of %d paired rounds, three members and their callers on %d processors of one host, %s.\n<!-- /figures -->\n", r.plan.rounds, runtime.NumCPU(), r.begun.UTC().Format(time.DateOnly))
}

// aims writes the aims with the figures of this run.
func (r report) aims(w io.Writer) {
	fmt.Fprint(w, "\n## Aims\n\n| | system | against | aim | measured | |\n|---|---|---|---:|---:|---|\n")
	for _, a := range aims {
		against, wanted := "-", "at least "+a.text(a.bound)
		if a.peer != "" {
			against = a.peer
		}
		if a.most {
			wanted = "at most " + a.text(a.bound)
		}
		title := a.workload
		if wl, err := workloadOf(a.workload); err == nil {
			title = wl.title
		}
		measured, verdict := "-", "not measured"
		if s, ok := a.measured(r.tables); ok {
			measured = fmt.Sprintf("%s (%s-%s)", a.text(s.median), a.text(s.least), a.text(s.most))
			verdict = "**missed**"
			if a.met(s) {
				verdict = "met"
			}
		}
		fmt.Fprintf(w, "| %s, %s | %s | %s | %s | %s | %s |\n", a.quantity.name, title, a.ours, against, wanted, measured, verdict)
	}
}

// A comparison is a table of wardmote of one class against the peers of another.
type comparison struct {
	title        string
	ours, theirs class
}

var comparisons = []comparison{
	{"Equal guarantees: durable", durable, durable},
	{"Weaker than the peers: `SyncBoot`", boot, durable},
	{"Weaker than the peers: in memory", memory, durable},
	{"Stronger than the peers: in memory", memory, weaker},
}

// ratios writes a comparison in a setting.
func (r report) ratios(w io.Writer, in setting, c comparison) {
	var us []running
	var peers []running
	for _, s := range r.systems {
		switch {
		case s.in != in:
		case s.kind.ours && s.kind.class == c.ours:
			us = append(us, s)
		case !s.kind.ours && s.kind.class == c.theirs:
			peers = append(peers, s)
		}
	}
	if len(us) != 1 || len(peers) == 0 {
		return
	}
	ours := us[0].kind
	var rows []string
	for _, t := range r.tables {
		row, some := "| "+t.workload.title+" |", false
		for _, p := range peers {
			a, b := t.samples[ours.name], t.samples[p.kind.name]
			if t.workload.in != in || t.workload.event != nil || len(a) == 0 || len(b) == 0 {
				row += " - | - |"
				continue
			}
			some = true
			rates, tails := spreadOf(ratios(a, b, rate.of)), spreadOf(ratios(a, b, p99.of))
			row += fmt.Sprintf(" **%s** (%s-%s) | %s (%s-%s) |", digits(rates.median), digits(rates.least), digits(rates.most),
				digits(tails.median), digits(tails.least), digits(tails.most))
		}
		if some {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## %s (%s)\n\n%s against peers. A rate above 1 and a p99 below 1 are in wardmote's favour.\n\n| workload |", c.title, in, ours.title)
	for _, p := range peers {
		fmt.Fprintf(w, " rate / %s | p99 / %s |", p.kind.name, p.kind.name)
	}
	fmt.Fprintf(w, "\n|---|%s\n%s\n", strings.Repeat("---:|---:|", len(peers)), strings.Join(rows, "\n"))
}

// fairness writes the shares of contenders.
func (r report) fairness(w io.Writer) {
	begun := false
	for _, t := range r.tables {
		if !strings.HasPrefix(t.workload.name, "hot/") {
			continue
		}
		if !begun {
			fmt.Fprint(w, "\n## Fairness\n\nThe count of the contender with the fewest cycles, as a share of the mean: medians of the rounds. In a turn with few cycles for each contender even a fair queue is below 1.\n\n| workload | system | share | cycles of each contender in a turn |\n|---|---|---:|---:|\n")
			begun = true
		}
		for _, s := range r.systems {
			if samples := t.samples[s.kind.name]; len(samples) > 0 && s.in == t.workload.in {
				fmt.Fprintf(w, "| %s | %s | %.2f | %s |\n", t.workload.title, s.kind.name,
					median(samples, func(s sample) float64 { return s.Fairness }),
					digits(median(samples, func(s sample) float64 { return float64(s.Cycles) })/float64(t.workload.callers)))
			}
		}
	}
}

// events writes the figures of the events.
func (r report) events(w io.Writer) {
	begun := false
	for _, t := range r.tables {
		if t.workload.event == nil {
			continue
		}
		if !begun {
			fmt.Fprint(w, "\n## Events\n\nMedians of the rounds, with the least and the most if there were several.\n\n| event | system | outcome |\n|---|---|---|\n")
			begun = true
		}
		for _, s := range r.systems {
			if s.in != t.workload.in {
				continue
			}
			if samples := t.samples[s.kind.name]; len(samples) > 0 {
				fmt.Fprintf(w, "| %s | %s | %s |\n", t.workload.title, s.kind.name, figuresText(samples))
			}
			if why := t.missing[s.kind.name]; why != "" {
				fmt.Fprintf(w, "| %s | %s | %s |\n", t.workload.title, s.kind.name, why)
			}
		}
	}
}

// figuresText prints the spread of each figure of an event.
func figuresText(samples []sample) string {
	var out []string
	for i, f := range samples[0].Figures {
		var values []float64
		for _, s := range samples {
			values = append(values, s.Figures[i].Value)
		}
		spread := spreadOf(values)
		text := strings.TrimSpace(fmt.Sprintf("%s: %s %s", f.Name, digits(spread.median), f.Unit))
		if len(values) > 1 {
			text += fmt.Sprintf(" (%s-%s)", digits(spread.least), digits(spread.most))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// details writes the samples of each system. No ratio may be computed from them.
func (r report) details(w io.Writer) {
	fmt.Fprint(w, "\n## Samples\n\nMedians of the rounds; CPU, flushes, entries and bytes are means for one cycle. Fairness is the count of the caller with the fewest cycles, as a share of the mean. Others is the share of the processors that other programs had. Ratios of these medians are not those of the tables above, which compare neighbouring turns.\n\n")
	fmt.Fprintln(w, "| workload | system | cycles/s | p50 | p99 | longest | CPU | flushes | entries | written | fairness | others | stolen |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, t := range r.tables {
		if t.workload.event != nil {
			continue
		}
		for _, sys := range r.systems {
			s := t.samples[sys.kind.name]
			if sys.in != t.workload.in {
				continue
			}
			if why := t.missing[sys.kind.name]; why != "" {
				fmt.Fprintf(w, "| %s | %s | %s | | | | | | | | | | |\n", t.workload.name, sys.kind.name, why)
			}
			if len(s) == 0 {
				continue
			}
			span := func(f func(sample) time.Duration) time.Duration {
				d := time.Duration(median(s, func(s sample) float64 { return float64(f(s)) }))
				return d.Round(max(d/1000, 1))
			}
			fmt.Fprintf(w, "| %s | %s | %.0f | %v | %v | %v | %v | %s | %s | %.0f B | %.2f | %.0f %% | %.1f %% |\n", t.workload.name, sys.kind.name,
				median(s, sample.rate),
				span(func(s sample) time.Duration { return s.P50 }),
				span(func(s sample) time.Duration { return s.P99 }),
				span(func(s sample) time.Duration { return s.Longest }),
				time.Duration(perCycle(s, func(s sample) float64 { return float64(s.CPU) })).Round(100*time.Nanosecond),
				digits(perCycle(s, func(s sample) float64 { return float64(s.Flushes) })),
				digits(perCycle(s, func(s sample) float64 { return float64(s.Entries) })),
				perCycle(s, func(s sample) float64 { return float64(s.Written) }),
				median(s, func(s sample) float64 { return s.Fairness }),
				100*median(s, func(s sample) float64 { return s.Others }),
				100*median(s, sample.stolenShare))
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

// command is the command that makes this report again, without directories.
func command(args []string) string {
	out := []string{"go run ."}
	for i, a := range args {
		if name, value, ok := strings.Cut(a, "="); ok && filepath.IsAbs(value) {
			a = name + "=" + filepath.Base(value)
		} else if i > 0 && filepath.IsAbs(a) {
			a = filepath.Base(a)
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// commit names wardmote's commit, as far as git knows it.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=, changed").Output()
	if err != nil {
		return "a tree without git"
	}
	return "commit " + strings.TrimSpace(string(out))
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
