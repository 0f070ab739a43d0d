package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// A job is one turn of a system, told by the driver as a line of JSON.
type job struct {
	Workload  string
	RunIn     time.Duration // before anything counts
	For       time.Duration
	PerSecond float64 // of an open loop
	Smoke     bool    // an event is played with less
}

// A sample is the outcome of a job, a line of JSON too. The first line of a system has
// only Version, or Err.
type sample struct {
	Version string `json:",omitempty"`
	Err     string `json:",omitempty"`
	NotHad  bool   `json:",omitempty"` // Err is an absence

	Cycles   uint64
	Elapsed  time.Duration
	P50, P99 time.Duration // of acquires
	Longest  time.Duration
	Fairness float64 // cycles of the caller with the fewest, as a share of the mean

	CPU, Stolen time.Duration
	Flushes     uint64
	Written     uint64
	Entries     uint64
	Heap        uint64  // bytes of the process after the turn
	Others      float64 // share of the processors that other programs had

	Figures []figure `json:",omitempty"` // of an event
}

// A figure is one outcome of an event.
type figure struct {
	Name  string
	Value float64
	Unit  string
}

// rate returns the cycles of a second.
func (s sample) rate() float64 { return float64(s.Cycles) / s.Elapsed.Seconds() }

// stolenShare returns the share of the processors that the hypervisor took.
func (s sample) stolenShare() float64 {
	return s.Stolen.Seconds() / s.Elapsed.Seconds() / float64(runtime.NumCPU())
}

// serve is the process of one system. It ends with its standard input.
func serve(k kind, dir string, in io.Reader, out io.Writer) error {
	answer := json.NewEncoder(out)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := k.start(ctx, dir)
	if err != nil {
		answer.Encode(sample{Err: err.Error()})
		return err
	}
	return errors.Join(answerJobs(in, answer, sample{Version: s.version()}, func(j job) sample {
		done, err := do(s, dir, j)
		if err != nil {
			done = sample{Err: err.Error(), NotHad: errors.As(err, new(absence))}
		}
		return done
	}), s.stop())
}

// answerJobs sends the first answer, which tells that the process is ready, and then one for
// each job until the input ends.
func answerJobs[J, A any](in io.Reader, answer *json.Encoder, ready A, do func(J) A) error {
	jobs, a := json.NewDecoder(in), ready
	for {
		if err := answer.Encode(a); err != nil {
			return err
		}
		var j J
		if err := jobs.Decode(&j); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		a = do(j)
	}
}

// eventPatience bounds one event.
const eventPatience = 15 * time.Minute

// do runs one job.
func do(s system, dir string, j job) (sample, error) {
	w, err := workloadOf(j.Workload)
	if err != nil {
		return sample{}, err
	}
	if w.event != nil {
		ctx, cancel := context.WithTimeout(context.Background(), eventPatience)
		defer cancel()
		figures, err := w.event(ctx, s, j.Smoke)
		return sample{Figures: figures}, err
	}
	many, apart := s.(manyProcesses)
	var callers []caller
	if !apart {
		callers = make([]caller, w.callers)
	}
	for i := range callers {
		callers[i], err = s.caller(context.Background(), w.at, i, w.contend)
		if err != nil {
			return sample{}, err
		}
	}
	turn := func(d time.Duration) (result, time.Duration) {
		if apart {
			return many.turn(j, d)
		}
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		begun := time.Now()
		r := w.run(ctx, callers, j.PerSecond)
		return r, time.Since(begun)
	}
	if r, _ := turn(j.RunIn); r.err != nil {
		return sample{}, r.err
	}
	before, entries := look(s.pids(), dir), s.entries()
	r, elapsed := turn(j.For)
	after := look(s.pids(), dir)
	if r.err != nil {
		return sample{}, r.err
	}
	var total uint64
	for _, n := range r.each {
		total += n
	}
	if total == 0 {
		return sample{}, fmt.Errorf("no cycle of %s ended within %v", w.name, elapsed)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return sample{
		Cycles: total, Elapsed: elapsed,
		P50: r.acquires.quantile(0.5), P99: r.acquires.quantile(0.99), Longest: r.acquires.longest,
		Fairness: float64(slices.Min(r.each)) * float64(len(r.each)) / float64(total),
		CPU:      after.cpu - before.cpu, Stolen: after.stolen - before.stolen,
		Flushes: after.flushes - before.flushes, Written: after.written - before.written,
		Entries: s.entries() - entries, Heap: m.HeapAlloc,
		Others: max(0, (after.busy-before.busy-after.cpu+before.cpu).Seconds()) / elapsed.Seconds() / float64(runtime.NumCPU()),
	}, nil
}

func serveMain(name, dir string) error {
	k, err := kindOf(name)
	if err != nil {
		return err
	}
	return serve(k, dir, os.Stdin, os.Stdout)
}
