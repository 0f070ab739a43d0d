package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func someRota(names ...string) *rota {
	n := uint64(0)
	r := &rota{commit: "c1", targets: []target{{"FuzzA", "fence"}, {"FuzzB", "fence"}}, seed: func() uint64 { n++; return 100 + n }}
	for _, name := range names {
		s, _ := suiteOf(name)
		r.suites = append(r.suites, s)
	}
	return r
}

func ran(suite string, seconds float64) run {
	return run{Commit: "c1", job: job{Suite: suite, Seed: 1}, Seconds: seconds}
}

// Suites get their shares, however long their runs are, over all interruptions.
func TestTheRotaGivesSharesByWeight(t *testing.T) {
	r := someRota("sim", "term", "fuzz")
	var runs []run
	spent := make(map[string]float64)
	for range 300 {
		j, ok := r.next(runs, nil)
		if !ok {
			t.Fatal("there is no next job")
		}
		x := run{Commit: "c1", job: j, Seconds: map[string]float64{"sim": 310, "term": 45, "fuzz": 121}[j.Suite]}
		runs = append(runs, x)
		spent[j.Suite] += x.Seconds
		r = someRota("sim", "term", "fuzz") // the command was started anew
	}
	for _, s := range r.suites {
		part := spent[s.name] / (spent["sim"] + spent["term"] + spent["fuzz"])
		if want := float64(s.weight) / 75; part < want*0.9 || part > want*1.1 {
			t.Errorf("%s has %.0f %% of the time, want %.0f %%", s.name, 100*part, 100*want)
		}
	}
}

func TestModelsRunOnceForEachCommit(t *testing.T) {
	r := someRota("sim", "model")
	first, _ := r.next(nil, nil)
	beside, _ := r.next(nil, []job{first})
	later, _ := r.next([]run{ran("model", 1)}, nil)
	if first.Suite != "model" || beside.Suite != "sim" || later.Suite != "sim" {
		t.Errorf("%v, beside it %v, later %v", first, beside, later)
	}
	r.commit = "c2"
	if j, _ := r.next([]run{ran("model", 1)}, nil); j.Suite != "model" {
		t.Errorf("at the next commit %v is first", j)
	}
}

// A failure is tried three times, with the seed that failed, before anything else.
func TestAFailureIsTriedAgain(t *testing.T) {
	r := someRota("sim", "model")
	bad := ran("sim", 300)
	bad.ID, bad.Failed = "7", true
	bad.Results = []json.RawMessage{[]byte(`{"seed":1,"violations":0}`), []byte(`{"seed":3,"violations":["two holders"],"plan":"24,fresh/idle/cut"}`)}
	runs := []run{ran("model", 1), bad}
	for n := 1; n <= againTimes; n++ {
		j, ok := r.next(runs, nil)
		if !ok || j.Again != n || j.Of != "7" || j.Seed != 3 || j.Plan != "24,fresh/idle/cut" || j.Suite != "sim" {
			t.Fatalf("time %d: %+v", n, j)
		}
		if beside, _ := r.next(runs, []job{j}); beside.Again != 0 {
			t.Errorf("two tries at a time: %+v", beside)
		}
		runs = append(runs, run{Commit: "c1", job: j, Failed: n == 2})
	}
	if j, _ := r.next(runs, nil); j.Again != 0 {
		t.Errorf("tried once more: %+v", j)
	}
	s := summarize(runs)
	if len(s.Failures) != 1 || s.Failures[0].Tried != 3 || s.Failures[0].Repeated != 1 || s.Failures[0].Seed != 3 {
		t.Errorf("%+v", s.Failures)
	}
	if text := s.report(); !strings.Contains(text, "WARDMOTE_SIM=1s WARDMOTE_SEED=3 WARDMOTE_SIM_PLAN=24,fresh/idle/cut go test") || !strings.Contains(text, "repeated 1 times") {
		t.Error(text)
	}
}

// Nothing runs beside a suite with promises of time.
func TestRealProcessesRunAlone(t *testing.T) {
	r := someRota("sim", "processes")
	runs := []run{ran("sim", 300)}
	if j, ok := r.next(runs, []job{{Suite: "sim"}}); ok {
		t.Errorf("%+v beside a simulation", j)
	}
	j, ok := r.next(runs, nil)
	if !ok || j.Suite != "processes" {
		t.Fatalf("%+v, %v", j, ok)
	}
	if beside, ok := r.next(runs, []job{j}); ok {
		t.Errorf("%+v beside processes", beside)
	}
}

func TestFuzzTargetsTakeTurns(t *testing.T) {
	r := someRota("fuzz")
	a := ran("fuzz", 120)
	a.Target, a.Package = "FuzzA", "fence"
	j, _ := r.next([]run{a}, nil)
	if j.Target != "FuzzB" || j.Package != "fence" {
		t.Errorf("%+v", j)
	}
}

// After a crash in the middle of a line, the runs before it count, and the file goes on.
func TestAHalfWrittenLineIsNoRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "runs.jsonl")
	b, err := newBook(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		x := ran("sim", 5)
		x.ID = id
		if err := b.add(x); err != nil {
			t.Fatal(err)
		}
	}
	b.close()
	text, _ := os.ReadFile(name)
	if err := os.WriteFile(name, text[:len(text)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = newBook(name); err != nil || len(b.runs) != 1 || b.runs[0].ID != "1" {
		t.Fatalf("%+v, %v", b, err)
	}
	if err := b.add(ran("term", 7)); err != nil {
		t.Fatal(err)
	}
	b.close()
	if b, err = newBook(name); err != nil || len(b.runs) != 2 || b.runs[1].Suite != "term" {
		t.Fatalf("%+v, %v", b, err)
	}
	b.close()
	if err := os.WriteFile(name, append([]byte("{]\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = newBook(name); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a line that is damaged in the middle: %v", err)
	}
}

// Suites count faults as a number or by kind, and violations as a number or a list.
func TestTheSummaryAddsUp(t *testing.T) {
	sim, term, fuzz, bugs := ran("sim", 3600), ran("term", 1800), ran("fuzz", 120), ran("mutants", 60)
	sim.Results = []json.RawMessage{[]byte(`{"suite":"sim","hours":2.5,"grants":10,"faults":4,"coverage":["a","b"],"violations":[]}`),
		[]byte(`{"suite":"sim","hours":1,"grants":3,"faults":2,"coverage":["b"],"violations":[]}`), []byte(`"odd"`)}
	term.Results = []json.RawMessage{[]byte(`{"suite":"term","hours":8,"grants":7,"faults":{"cut":5,"late":1},"coverage":["x"],"uncovered":["y","z"],"violations":[]}`),
		[]byte(`{"suite":"term","hours":1,"faults":{"cut":1},"coverage":["z"],"uncovered":["y"],"violations":[]}`)}
	fuzz.Target, fuzz.Package, fuzz.CPU = "FuzzA", "fence", 90
	bugs.Results = []json.RawMessage{[]byte(`{"mutant":"no mark","promise":"fair","survived":false,"found":[{"by":"package fence","cpu":1.5},{"by":"term","cpu":2}]}`),
		[]byte(`{"mutant":"no room","promise":"fair","survived":true,"found":null}`)}
	s := summarize([]run{sim, term, fuzz, bugs})
	text := s.report()
	for _, want := range []string{
		"| sim | 1 | 1.0 | 3.5 | 13 | 6 | 2 | 0 |",
		"| term | 1 | 0.5 | 9.0 | 7 | 7 | 2 of 3 | 0 |",
		"| cut | 6 |", "Never seen: y.",
		"| fence | FuzzA | 1.5 |",
		"| no mark | fair | package fence (1.5 s), term (2.0 s) |", "| no room | fair | nobody |",
		"None.",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	sum := s.Suites[0]
	sum.compare("# a comment\na\nb\n\nc\nd\n")
	if sum.covered() != 50 || strings.Join(sum.Uncovered, "") != "cd" || new(tally).covered() != 100 {
		t.Errorf("%.0f %% covered, not %q", sum.covered(), sum.Uncovered)
	}
	if p := s.promises(); !strings.Contains(p, "| fair | 2 | 1 |") {
		t.Error(p)
	}
}

// Figures in the summary come back from their file unchanged, and stand in VERIFICATION.md.
func TestVerificationHasTheFiguresOfTheSummary(t *testing.T) {
	text, err := os.ReadFile("../../docs/verification/summary.json")
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../VERIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	_, figures, _, err := marked(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if want := s.figures(); figures != want {
		t.Errorf("VERIFICATION.md has other figures than docs/verification/summary.json: run go run ./internal/torture -report -publish\n%s", want)
	}
}

func TestMarksAreWhole(t *testing.T) {
	good := "a\n" + beginFigures + "b\n" + endFigures + "c\n"
	if before, figures, after, err := marked(good); err != nil || before+figures+after != good || figures != "b\n" {
		t.Errorf("%q %q %q %v", before, figures, after, err)
	}
	for _, bad := range []string{"a", beginFigures, endFigures + beginFigures, good + good} {
		if _, _, _, err := marked(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A hanging child is ended with its group, and an interruption leaves no run.
func TestAChildEndsWithItsGroup(t *testing.T) {
	if os.Getenv("TORTURE_CHILD") != "" {
		fmt.Println("begun")
		<-time.After(time.Minute)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{root: t.TempDir(), dir: t.TempDir(), commit: "c1"}
	for _, dir := range []string{filepath.Dir(w.binary("locks", false)), filepath.Join(w.root, "locks")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(exe, w.binary("locks", false)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TORTURE_CHILD", "1")
	hang := suite{name: "term", pkg: "locks", run: "^TestAChildEndsWithItsGroup$", limit: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	cmd := w.command(ctx, hang, job{Suite: "term"})
	ownGroup(cmd)
	cmd.Cancel = func() error { return endGroup(cmd, false) }
	cmd.WaitDelay = grace
	if err := cmd.Run(); err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if _, err := w.run(ctx, "1", job{Suite: "term"}); err == nil {
		t.Error("an interrupted job is a run")
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "under-way", "*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestEverySuiteCanBeReplayed(t *testing.T) {
	for _, s := range suites {
		j := job{Suite: s.name, Seed: 5}
		if s.name == "fuzz" {
			j.Target, j.Package = "FuzzA", "fence"
		}
		if text := s.replay(j); !strings.Contains(text, "go test") && !strings.Contains(text, "make mutants") {
			t.Errorf("%s: %s", s.name, text)
		}
		if s.weight == 0 && s.length != "" || s.limit == 0 {
			t.Errorf("%s: a suite that runs once has no slices, and every suite has a limit", s.name)
		}
	}
	if list := inTree("../.."); len(list) < 6 {
		t.Errorf("only %d suites are in the tree", len(list))
	}
}
