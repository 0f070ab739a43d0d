package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The process of a system is this test's binary, as it is bench's own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		if got := h.quantile(q); got < want || float64(got) > 1.07*float64(want) {
			t.Errorf("quantile %v is %v, and should be at most 7 %% above %v", q, got, want)
		}
	}
	for d := time.Duration(0); d < 10*time.Second; d += d/7 + 1 {
		b := bucketOf(d)
		if upper(b) < d || b > 0 && upper(b-1) >= d {
			t.Fatalf("%v is in bucket %d, which ends at %v after %v", d, b, upper(b), upper(max(b-1, 0)))
		}
	}
}

func TestSpread(t *testing.T) {
	if got, want := spreadOf([]float64{3, 1, 2}), (spread{1, 2, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := spreadOf([]float64{4, 1, 2, 3}), (spread{1, 2.5, 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each system that runs on this host does the workloads of its settings, and says so where
// it cannot.
func TestEachSystem(t *testing.T) {
	do := map[setting][]string{
		oneProcess: {"own/16", "lazy/1", "again/1", "hot/2", "zipf/64", "set/16", "readers/64", "thin/1", "held/1M"},
		processes:  {"processes/16", "processes-hot/16", "killed", "restart/1M"},
		delayed:    {"delay/1", "delay-lazy/1", "delay-hot/16", "delay-leader/1"},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if err := k.there(); err != nil {
				t.Skip(err)
			}
			pl, err := beginPlayer(k, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer pl.stop()
			if err := pl.up(); err != nil {
				t.Fatal(err)
			}
			for _, in := range k.in {
				for _, name := range do[in] {
					s, err := pl.do(job{Workload: name, For: 200 * time.Millisecond, Smoke: true})
					if err != nil {
						t.Fatal(err)
					}
					if s.NotHad || len(s.Figures) > 0 && s.Err == "" {
						continue
					}
					if k.ours && s.Entries == 0 || s.Cycles == 0 || s.Err != "" {
						t.Errorf("%s: %+v", name, s)
					}
				}
			}
			if k.in[0] != oneProcess {
				return
			}
			s, err := pl.do(job{Workload: "open/half", For: time.Second, PerSecond: 100})
			if err != nil || s.Err != "" {
				t.Fatal(s.Err, err)
			}
			// A host that stands still begins fewer cycles; no host begins twice as many.
			if s.Cycles == 0 || s.Cycles > 200 {
				t.Errorf("%d cycles were begun in a second at a rate of 100", s.Cycles)
			}
		})
	}
}

// wardmote does each workload of the settings that its systems are in: an absence is a peer's.
func TestWardmoteDoesEachWorkload(t *testing.T) {
	for _, w := range workloads {
		n := 0
		for _, k := range kinds {
			if k.ours && k.class == durable && slices.Contains(k.in, w.in) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %d durable systems of wardmote in the setting %q", w.name, n, w.in)
		}
	}
}

// The callers of several processes are together those of one.
func TestPart(t *testing.T) {
	var got []int
	w := workload{callers: 7, cycle: func(_ context.Context, _ caller, i int, _ *rand.Rand) (time.Duration, error) {
		got = append(got, i)
		return 0, nil
	}}
	for part := range 3 {
		p := w.part(part, 3)
		for i := 0; i*3+part < w.callers; i++ {
			p.cycle(t.Context(), nil, i, nil)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("the callers are %v", got)
	}
}

// A grant is that of the first attempt that succeeds, however long an earlier one hangs.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		at, err := attempts(t.Context(), func(ctx context.Context, n int) error {
			if n < 3 {
				<-ctx.Done() // as a request to a dead leader
				return ctx.Err()
			}
			time.Sleep(5 * time.Millisecond)
			return nil
		})
		if took := at.Sub(begun); err != nil || took != 3*attemptEvery+5*time.Millisecond {
			t.Errorf("the grant came after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := attempts(ctx, func(context.Context, int) error { return errNoStart }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("attempts that all fail end with %v", err)
		}
	})
}

// A system that fails, or ends, is left out from then on; the others go on, and the run
// fails.
func TestAFailureIsTold(t *testing.T) {
	var log strings.Builder
	p := plan{rounds: 2, turn: time.Second}
	w, err := workloadOf("own/1")
	if err != nil {
		t.Fatal(err)
	}
	answers := func(lines ...sample) *player {
		var b bytes.Buffer
		for _, s := range lines {
			if err := json.NewEncoder(&b).Encode(s); err != nil {
				t.Fatal(err)
			}
		}
		return &player{jobs: json.NewEncoder(&log), samples: json.NewDecoder(&b)}
	}
	good, bad, dead := answers(someSample(1), someSample(2)), answers(sample{Err: "disk\nfull"}), answers(someSample(3))
	good.kind.name, bad.kind.name, dead.kind.name = "good", "bad", "dead"
	tab, err := p.play(t.Context(), w, []*player{good, bad, dead}, nil)
	if err != nil || len(tab.samples["good"]) != 2 || len(tab.failures) != 2 {
		t.Fatalf("%+v, %v", tab, err)
	}
	if got := tab.missing["bad"]; got != "failed: disk full" {
		t.Errorf("the report says %q", got)
	}
	if dead.ended == nil {
		t.Error("a dead player is asked again")
	}
}

// A system that cannot be started says why.
func TestAFailedStart(t *testing.T) {
	k := kind{name: "none", start: nil}
	pl, err := beginPlayer(k, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer pl.stop()
	if err := pl.up(); err == nil {
		t.Fatal("a system that nobody knows was started")
	}
	in, out := io.Pipe()
	defer in.Close()
	out.Close()
	var b bytes.Buffer
	k.start = startFails
	if err := serve(k, t.TempDir(), in, &b); err == nil {
		t.Error("a failed start was none")
	}
	var s sample
	if err := json.Unmarshal(b.Bytes(), &s); err != nil || s.Err != errNoStart.Error() {
		t.Errorf("the driver was told %q", b.String())
	}
}

// someSample returns a sample of a second.
func someSample(cycles uint64) sample {
	return sample{Cycles: cycles, Elapsed: time.Second, P50: 800 * time.Nanosecond, P99: 2 * time.Millisecond, Others: 0.5}
}

// someReport returns a report of two workloads.
func someReport(t *testing.T, file string) report {
	t.Helper()
	at := someSample
	r := report{
		plan: plan{rounds: 3, turn: time.Second, report: file}, begun: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), commit: "commit abc",
		left: map[string]error{"zookeeper": errors.New("no java")},
	}
	for _, k := range kinds[:5] {
		r.systems = append(r.systems, running{k.in[0], k, "v" + k.name})
	}
	for _, name := range []string{"own/1", "again/1"} {
		w, err := workloadOf(name)
		if err != nil {
			t.Fatal(err)
		}
		r.tables = append(r.tables, table{workload: w, missing: map[string]string{"zookeeper": "not to be had"}, samples: map[string][]sample{
			"wardmote": {at(200), at(400), at(300)}, "etcd": {at(100), at(100), at(200)}, "wardmote-memory": {at(600), at(600), at(600)},
		}})
	}
	return r
}

// The report and its chart have each workload and each system; the chart is well-formed.
func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.md")
	if err := someReport(t, file).write(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**2.0** (1.5-4.0)", "zookeeper was not run: no java.", "| own/1 | etcd | 100 |", "| own/1 | zookeeper | not to be had |", "2026-01-02", "commit abc",
		"**The machine was not quiet:**", "Not in this run: own/16 (own keys, 16 callers); ", "![Rates of wardmote divided by those of its peers](report.svg)",
		"<!-- figures -->\n| cycles of acquire and release, wardmote / peer | `Dir` | `SyncBoot` | in memory |\n|---|---:|---:|---:|\n| etcd, 1 caller | 2.0x | - | 6.0x |\n| `Sticky`: the same key again, median | 800ns | - | 800ns |\n",
		"| rate, own keys, 1 caller | wardmote | etcd | at least 1.8x | 2x (1.5x-4x) | met |",
		"| rate, own keys, 1 caller | wardmote-memory | etcd | at least 7x | 6x (3x-6x) | **missed** |",
		"| rate, own keys, 1 caller | wardmote-boot | etcd | at least 5x | - | not measured |",
		"| wardmote | - | at most 1µs | 800ns (800ns-800ns) | met |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report does not have %q:\n%s", want, text)
		}
	}
	chart, err := os.ReadFile(filepath.Join(filepath.Dir(file), "report.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(chart, new(struct{})); err != nil {
		t.Errorf("the chart is no XML: %v", err)
	}
	if n := strings.Count(string(chart), "<rect"); n != 4 {
		t.Errorf("the chart has %d bars, not 4: two workloads, two classes, one peer", n)
	}
}

// The aims name workloads and systems that there are, and compare no class with a peer
// that promises more than the report's tables allow.
func TestAims(t *testing.T) {
	for _, a := range aims {
		w, err := workloadOf(a.workload)
		if err != nil {
			t.Error(err)
		}
		us, err := kindOf(a.ours)
		if err != nil || !us.ours || !slices.Contains(us.in, w.in) {
			t.Errorf("%s: %q is no system of wardmote there: %v", a.workload, a.ours, err)
		}
		if a.peer == "" {
			continue
		}
		them, err := kindOf(a.peer)
		if err != nil || them.ours || !slices.Contains(them.in, w.in) {
			t.Errorf("%s: %q is no peer there: %v", a.workload, a.peer, err)
		}
		if !slices.ContainsFunc(comparisons, func(c comparison) bool { return c.ours == us.class && c.theirs == them.class }) {
			t.Errorf("%s: no table compares %s with %s", a.workload, a.ours, a.peer)
		}
	}
	only, systems := quickSelection()
	for _, name := range only {
		w, err := workloadOf(name)
		if err != nil {
			t.Fatal(err)
		}
		if system, of, ok := strings.Cut(w.rateOf, " "); ok && (!slices.Contains(only, of) || !slices.Contains(systems, system)) {
			t.Errorf("-quick has %s, and not the %s that gives its rate", name, w.rateOf)
		}
	}
}

// The command in the report has no directory of the host.
func TestCommand(t *testing.T) {
	got := command([]string{"-quick", "-o", "/home/someone/docs/benchmark.md", "-dir=/data/x", "-rounds", "5"})
	if want := "go run . -quick -o benchmark.md -dir=x -rounds 5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A player dies with its driver, and its servers with the player.
func TestNothingIsLeft(t *testing.T) {
	if err := redisThere(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-serve", "redis", "-dir", t.TempDir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first sample
	if err := json.NewDecoder(out).Decode(&first); err != nil || first.Err != "" {
		t.Fatal(first.Err, err)
	}
	children, err := os.ReadFile("/proc/" + itoa(cmd.Process.Pid) + "/task/" + itoa(cmd.Process.Pid) + "/children")
	if err != nil || len(children) == 0 {
		t.Fatalf("no server was started: %q, %v", children, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	server := strings.TrimSpace(string(children))
	for deadline := time.Now().Add(5 * time.Second); ; {
		stat, err := os.ReadFile("/proc/" + server + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redis-server %s outlived its player", server)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
