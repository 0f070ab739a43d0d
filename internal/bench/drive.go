package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A plan is a whole comparison.
type plan struct {
	dir           string
	list          bool
	rounds        int
	turn          time.Duration
	only, systems []string
	smoke, quick  bool
	report        string
}

// runIn is the part of a turn before anything counts: the callers' first requests,
// after which the garbage of the turn before is collected and connections are warm.
const runIn = 200 * time.Millisecond

// smokeTurn is the length of a turn of -smoke.
const smokeTurn = 150 * time.Millisecond

// A player is the process of a system.
type player struct {
	kind    kind
	version string
	cmd     *exec.Cmd
	jobs    *json.Encoder
	in      io.Closer
	samples *json.Decoder
	ended   error // the process does no more jobs
}

// A table is the samples of one workload: by system, one for each round.
type table struct {
	workload workload
	samples  map[string][]sample
	missing  map[string]string // by system: why there are no samples
	failures []error
	rate     float64 // cycles a second that an open loop begins
}

func (p plan) run(ctx context.Context) error {
	if p.rounds < 1 || p.turn < 50*time.Millisecond {
		return errors.New("-rounds is at least 1, and -turn at least 50ms")
	}
	if p.smoke {
		p.rounds, p.turn = 1, min(p.turn, smokeTurn)
		if p.systems == nil {
			p.systems = names(kinds, func(k kind) string { return k.name }, func(k kind) bool { return k.ours })
		}
	}
	if p.quick {
		p.only, p.systems = quickSelection()
	}
	for _, name := range p.only {
		if _, err := workloadOf(name); err != nil {
			return err
		}
	}
	chosen, left, err := p.choose()
	if err != nil {
		return err
	}
	dir := p.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "wardmote-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	r := report{plan: p, begun: time.Now(), left: left, commit: commit()}
	for _, in := range settings {
		if err := p.playIn(ctx, in, chosen, dir, &r); err != nil {
			return err
		}
	}
	err = r.write()
	for _, t := range r.tables {
		err = errors.Join(err, errors.Join(t.failures...))
	}
	return err
}

// names returns the names of some elements.
func names[E any](all []E, name func(E) string, of func(E) bool) (out []string) {
	for _, e := range all {
		if of(e) {
			out = append(out, name(e))
		}
	}
	return out
}

// playIn plays the workloads of a setting, with its systems up.
func (p plan) playIn(ctx context.Context, in setting, chosen []kind, dir string, r *report) error {
	var todo []workload
	for _, w := range workloads {
		if w.in == in && (len(p.only) == 0 || slices.Contains(p.only, w.name)) {
			todo = append(todo, w)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	var players []*player
	defer func() {
		for _, pl := range players {
			pl.stop()
		}
	}()
	for _, k := range chosen {
		if !slices.Contains(k.in, in) {
			continue
		}
		pl, err := beginPlayer(k, filepath.Join(dir, string(in[:1])+k.name))
		if err != nil {
			return err
		}
		players = append(players, pl)
	}
	for _, pl := range players {
		if err := pl.up(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s is up: %s\n", pl.kind.name, pl.version)
	}
	for _, w := range todo {
		t, err := p.play(ctx, w, players, r.tables)
		if err != nil {
			return err
		}
		r.tables = append(r.tables, t)
	}
	for _, pl := range players {
		r.systems = append(r.systems, running{in, pl.kind, pl.version})
	}
	return nil
}

// choose returns the kinds to run, and why others are left out.
func (p plan) choose() (chosen []kind, left map[string]error, err error) {
	for _, name := range p.systems {
		if _, err := kindOf(name); err != nil {
			return nil, nil, err
		}
	}
	left = make(map[string]error)
	for _, k := range kinds {
		if len(p.systems) > 0 && !slices.Contains(p.systems, k.name) {
			continue
		}
		if err := k.there(); err != nil {
			left[k.name] = err
			continue
		}
		chosen = append(chosen, k)
	}
	return chosen, left, nil
}

// beginPlayer starts the process of a system, which then starts the system. It must be
// called by the main goroutine: see apart.
func beginPlayer(k kind, dir string) (*player, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-serve", k.name, "-dir", dir)
	cmd.SysProcAttr = apart()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pl := &player{kind: k, cmd: cmd, jobs: json.NewEncoder(in), in: in, samples: json.NewDecoder(out)}
	return pl, nil
}

// up waits until the system is up.
func (pl *player) up() error {
	var first sample
	if err := pl.samples.Decode(&first); err != nil {
		return fmt.Errorf("%s did not start: %w", pl.kind.name, err)
	}
	if first.Err != "" {
		return fmt.Errorf("%s did not start: %s", pl.kind.name, first.Err)
	}
	pl.version = first.Version
	return nil
}

// do has the player do a job.
func (pl *player) do(j job) (sample, error) {
	var s sample
	if err := pl.jobs.Encode(j); err != nil {
		return s, fmt.Errorf("%s: %w", pl.kind.name, err)
	}
	if err := pl.samples.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", pl.kind.name, err)
	}
	return s, nil
}

// stop ends the player's process, which ends its servers.
func (pl *player) stop() {
	pl.in.Close()
	kill := time.AfterFunc(20*time.Second, func() { pl.cmd.Process.Kill() })
	defer kill.Stop()
	pl.cmd.Wait()
}

// play has the players work in turns. In every second round the order is reversed, so
// that no system always follows the same one.
func (p plan) play(ctx context.Context, w workload, players []*player, before []table) (table, error) {
	t := table{workload: w, samples: make(map[string][]sample), missing: make(map[string]string)}
	if w.share > 0 {
		peak, ok := peakRate(w.rateOf, before)
		if !ok {
			for _, pl := range players {
				t.missing[pl.kind.name] = "needs " + w.rateOf
			}
			return t, nil
		}
		t.rate = w.share * peak
	}
	rounds := p.rounds
	if w.event != nil {
		rounds = min(rounds, w.rounds)
	}
	for round := range rounds {
		order := slices.Clone(players)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, pl := range order {
			if err := ctx.Err(); err != nil {
				return t, err
			}
			if pl.ended != nil {
				t.missing[pl.kind.name] = "ended in an earlier workload"
			}
			if t.missing[pl.kind.name] != "" {
				continue
			}
			s, err := pl.do(job{Workload: w.name, RunIn: min(runIn, p.turn/2), For: p.turn, PerSecond: t.rate, Smoke: p.smoke})
			switch {
			case err != nil:
				pl.ended = err
				t.fail(pl.kind.name, err.Error())
			case s.NotHad:
				t.missing[pl.kind.name] = s.Err
			case s.Err != "":
				t.fail(pl.kind.name, s.Err)
			default:
				t.samples[pl.kind.name] = append(t.samples[pl.kind.name], s)
				if w.event != nil {
					fmt.Fprintf(os.Stderr, "%-12s round %d  %-16s %v\n", w.name, round+1, pl.kind.name, s.Figures)
					continue
				}
				fmt.Fprintf(os.Stderr, "%-12s round %d  %-16s %9.0f cycles/s  p50 %v  p99 %v\n", w.name, round+1, pl.kind.name, s.rate(), s.P50, s.P99)
			}
		}
	}
	return t, nil
}

// fail notes that a system failed. Its samples stay: the report says so beside them.
func (t *table) fail(system, why string) {
	why = strings.Join(strings.Fields(why), " ")
	t.missing[system] = "failed: " + why
	t.failures = append(t.failures, fmt.Errorf("%s, %s: %s", t.workload.name, system, why))
	fmt.Fprintln(os.Stderr, "bench:", t.failures[len(t.failures)-1])
}

// peakRate returns the median rate of a system in a workload: "etcd own/256".
func peakRate(of string, tables []table) (float64, bool) {
	var system, name string
	fmt.Sscan(of, &system, &name)
	for _, t := range tables {
		if t.workload.name == name && len(t.samples[system]) > 0 {
			return spreadOf(rates(t.samples[system])).median, true
		}
	}
	return 0, false
}
