package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	hours     float64
	dir       string
	only      string
	targets   string
	processes int
	slice     time.Duration
	coverage  float64
	report    bool
	publish   bool
}

func main() {
	var o options
	flag.Float64Var(&o.hours, "hours", 1, "look for so long, by the host's clock")
	flag.StringVar(&o.dir, "dir", "torture-results", "the directory of the results")
	flag.StringVar(&o.only, "only", "", "comma-separated names of the suites to run; all without it")
	flag.StringVar(&o.targets, "targets", "", "a regular expression: of the fuzz targets, run these; all without it")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "run so many suites at a time")
	flag.DurationVar(&o.slice, "slice", 0, "let a run of a simulation or a storm last so long; 0: as long as its suite has it")
	flag.Float64Var(&o.coverage, "coverage", 0, "fail if a simulation has seen less of its situations, in percent")
	flag.BoolVar(&o.report, "report", false, "run nothing: report what the directory has")
	flag.BoolVar(&o.publish, "publish", false, "copy the summary and the figures into docs/verification and VERIFICATION.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := torture(ctx, o)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// torture runs the suites and reports. failed tells whether any run has failed.
func torture(ctx context.Context, o options) (failed bool, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return false, err
	}
	commit, err := output(ctx, ".", "git", "describe", "--always", "--dirty", "--exclude=*")
	if err != nil {
		return false, err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return false, err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return false, err
	}
	b, err := newBook(filepath.Join(o.dir, "runs.jsonl"))
	if err != nil {
		return false, err
	}
	defer b.close()
	w := &workshop{root: strings.TrimSpace(root), dir: o.dir, commit: strings.TrimSpace(commit), slice: o.slice}
	if !o.report {
		if err := w.play(ctx, o, b); err != nil {
			return false, err
		}
	}
	return w.conclude(b.runs, o)
}

// A book keeps the lines of runs.
type book struct {
	f    *os.File
	runs []run
}

// newBook opens the file of lines, and cuts off a half written last line.
func newBook(name string) (*book, error) {
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	runs, err := readRuns(bytes.NewReader(whole))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if len(whole) < len(text) {
		if err := f.Truncate(int64(len(whole))); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &book{f, runs}, nil
}

// add appends a run, durably.
func (b *book) add(r run) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := b.f.Write(append(line, '\n')); err != nil {
		return err
	}
	b.runs = append(b.runs, r)
	return b.f.Sync()
}

func (b *book) close() { _ = b.f.Close() } // every line was synced

// play runs jobs until the time is over or ctx ends. Runs under way at the end of ctx have
// not happened; those under way when the time is over are waited for.
func (w *workshop) play(ctx context.Context, o options, b *book) error {
	rota, err := w.prepare(ctx, o)
	if err != nil {
		return err
	}
	until := time.Now().Add(time.Duration(o.hours * float64(time.Hour)))
	type ended struct {
		j   job
		r   run
		err error
	}
	ends := make(chan ended)
	var running []job
	var failure error
	for n := len(b.runs); ; {
		for failure == nil && ctx.Err() == nil && time.Now().Before(until) && len(running) < max(1, o.processes) {
			j, ok := rota.next(b.runs, running)
			if !ok {
				break
			}
			n++
			id := fmt.Sprintf("%04d-%s-%d", n, j.Suite, time.Now().Unix())
			running = append(running, j)
			go func() {
				r, err := w.run(ctx, id, j)
				ends <- ended{j, r, err}
			}()
		}
		if len(running) == 0 {
			return failure
		}
		e := <-ends
		running = slices.Delete(running, slices.Index(running, e.j), slices.Index(running, e.j)+1)
		switch {
		case e.err == nil:
			e.err = b.add(e.r)
			fmt.Println(told(e.r))
		case ctx.Err() != nil:
			e.err = nil // interrupted: the run is begun anew another time
		}
		failure = errors.Join(failure, e.err)
	}
}

// prepare builds the suites.
func (w *workshop) prepare(ctx context.Context, o options) (*rota, error) {
	r := &rota{commit: w.commit, seed: func() uint64 { return rand.Uint64() >> 1 }}
	for _, s := range inTree(w.root) {
		if o.only == "" || slices.Contains(strings.Split(o.only, ","), s.name) {
			r.suites = append(r.suites, s)
		}
	}
	if len(r.suites) == 0 {
		return nil, fmt.Errorf("-only %q names no suite", o.only)
	}
	dirty := strings.HasSuffix(w.commit, "-dirty")
	for _, s := range r.suites {
		switch {
		case s.name == "fuzz":
			if err := w.findTargets(ctx, r, o.targets, dirty); err != nil {
				return nil, err
			}
		case !s.source:
			if err := w.build(ctx, s.pkg, false, dirty); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// findTargets builds the packages with fuzz targets, and lists the targets that match.
func (w *workshop) findTargets(ctx context.Context, r *rota, pattern string, dirty bool) error {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("-targets: %w", err)
	}
	files, err := output(ctx, w.root, "git", "grep", "-lE", "^func Fuzz", "--", "*_test.go")
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for name := range strings.FieldsSeq(files) {
		pkg := filepath.ToSlash(filepath.Dir(name))
		if seen[pkg] {
			continue
		}
		seen[pkg] = true
		if err := w.build(ctx, pkg, true, dirty); err != nil {
			return err
		}
		list, err := output(ctx, filepath.Join(w.root, filepath.FromSlash(pkg)), w.binary(pkg, true), "-test.list", "^Fuzz")
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(list) {
			if wanted.MatchString(name) {
				r.targets = append(r.targets, target{name, pkg})
			}
		}
	}
	if len(r.targets) == 0 {
		return fmt.Errorf("-targets %q matches no fuzz target", pattern)
	}
	return nil
}

// told is a line for the terminal.
func told(r run) string {
	verdict := "passed"
	if r.Failed {
		verdict = "FAILED, see failures/" + r.Output
	}
	name := r.Suite
	if r.Target != "" {
		name += " " + r.Target
	}
	return fmt.Sprintf("%s %s seed %d in %.0f s (%.0f s of CPU): %s", r.Began.Format("15:04:05"), name, r.Seed, r.Seconds, r.CPU, verdict)
}

// conclude writes the report and the summary.
func (w *workshop) conclude(runs []run, o options) (failed bool, err error) {
	s := summarize(runs)
	if err := s.readSituations(w.root); err != nil {
		return false, err
	}
	text := s.report()
	sum, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return false, err
	}
	sum = append(sum, '\n')
	err = errors.Join(
		os.WriteFile(filepath.Join(w.dir, "report.md"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(w.dir, "summary.json"), sum, 0o644))
	if o.publish && err == nil {
		err = w.publish(s, sum)
	}
	fmt.Print(text)
	for _, t := range s.Suites {
		if part := t.covered(); part < o.coverage {
			fmt.Printf("%s has seen %.1f %% of its situations, and %.1f %% are wanted\n", t.Suite, part, o.coverage)
			failed = true
		}
	}
	return failed || len(s.Failures) > 0, err
}

// publish copies the summary into the tree, and its figures into VERIFICATION.md.
func (w *workshop) publish(s summary, text []byte) error {
	page := filepath.Join(w.root, "VERIFICATION.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, _, after, err := marked(string(old))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(w.root, "docs", "verification", "summary.json"), text, 0o644),
		os.WriteFile(page, []byte(before+s.figures()+after), 0o644))
}
