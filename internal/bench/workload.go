package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A workload is the program of the callers.
type workload struct {
	name    string
	title   string
	in      setting
	callers int
	at      place
	contend bool // several callers compete for one key, and need sessions of their own

	// cycle runs one cycle of caller i and returns the time of its acquire.
	cycle func(ctx context.Context, c caller, i int, r *rand.Rand) (time.Duration, error)

	// rate is the cycles a second that are begun, whether or not earlier cycles have
	// ended, as a share of rateOf's rate in a closed loop. 0: a caller begins a cycle when
	// its last has ended.
	share  float64
	rateOf string // "system workload"

	// event replaces cycles: one happening, and its figures. smoke: with less of all.
	event  func(ctx context.Context, s system, smoke bool) ([]figure, error)
	rounds int // of an event, at most
}

var workloads = allWorkloads()

func allWorkloads() []workload {
	var all []workload
	for _, n := range []int{1, 16, 64, 256, 1024} {
		all = append(all, workload{name: fmt.Sprint("own/", n), title: fmt.Sprintf("own keys, %s", callersText(n)), callers: n, cycle: own})
	}
	for _, n := range []int{2, 16, 64, 256} {
		all = append(all, workload{name: fmt.Sprint("hot/", n), title: fmt.Sprintf("one hot key, %d contenders", n), callers: n, contend: true, cycle: hot})
	}
	for _, n := range []int{1, 256} {
		all = append(all, workload{name: fmt.Sprint("lazy/", n), title: fmt.Sprintf("own keys, %s; release not awaited where the system can", callersText(n)), callers: n, cycle: ownLazy})
	}
	all = append(all, workload{name: "again/1", title: "one key again and again, 1 caller; kept between the locks where the system can", callers: 1, cycle: again})
	all = append(all,
		workload{name: "zipf/64", title: "Zipf 0.99 over 10,000 keys, 64 callers", callers: 64, contend: true, cycle: zipf(10_000)},
		workload{name: "set/16", title: "AcquireAll of 8 own keys, 16 callers", callers: 16, cycle: set(8)},
		workload{name: "readers/64", title: "95 % readers of 16 keys, 64 callers", callers: 64, contend: true, cycle: readers(16, 0.95)},
		workload{name: "leader/1", title: "own key, 1 caller on the leader", callers: 1, at: atLeader, cycle: own},
		workload{name: "follower/1", title: "own key, 1 caller on a follower", callers: 1, at: atFollower, cycle: own},
		workload{name: "thin/1", title: "own key, 1 caller on a thin member", callers: 1, at: atThin, cycle: own},
		workload{name: "open/half", title: "open loop at half of etcd's capacity, own keys", callers: 256, cycle: own, share: 0.5, rateOf: "etcd own/256"},
	)
	for _, n := range []int{1, 16, 256} {
		all = append(all, workload{name: fmt.Sprint("processes/", n), title: fmt.Sprintf("members as processes: own keys, %s", callersText(n)), in: processes, callers: n, cycle: own})
	}
	all = append(all, workload{name: "processes-hot/16", title: "members as processes: one hot key, 16 contenders", in: processes, callers: 16, contend: true, cycle: hot})
	for _, n := range []int{1, 256} {
		all = append(all, workload{name: fmt.Sprint("delay/", n), title: fmt.Sprintf("1 ms of delay: own keys, %s", callersText(n)), in: delayed, callers: n, cycle: own})
	}
	all = append(all, workload{name: "delay-lazy/1", title: "1 ms of delay: own keys, 1 caller; release not awaited where the system can", in: delayed, callers: 1, cycle: ownLazy})
	all = append(all, workload{name: "delay-hot/16", title: "1 ms of delay: one hot key, 16 contenders", in: delayed, callers: 16, contend: true, cycle: hot})
	all = append(all, workload{name: "delay-leader/1", title: "1 ms of delay: own key, 1 caller on the leader", in: delayed, callers: 1, at: atLeader, cycle: own})
	all = append(all,
		workload{name: "held/1M", title: "1,000,000 keys held by the clients of one process, which end", event: heldEvent, rounds: 1},
		workload{name: "killed", title: "the leader's process is killed (SIGKILL)", in: processes, event: leaderEvent(syscall.SIGKILL), rounds: 9},
		workload{name: "silent", title: "the leader's process stands still (SIGSTOP)", in: processes, event: leaderEvent(syscall.SIGSTOP), rounds: 9},
		workload{name: "restart/1M", title: "all members are killed with 1,000,000 keys held, and start again", in: processes, event: restartEvent, rounds: 1},
	)
	for i := range all {
		if all[i].at == "" {
			all[i].at = everywhere
		}
		if all[i].in == "" {
			all[i].in = oneProcess
		}
	}
	return all
}

// part returns the workload of one of several processes, whose i-th caller is caller
// i*parts+part of all.
func (w workload) part(part, parts int) workload {
	cycle := w.cycle
	w.cycle = func(ctx context.Context, c caller, i int, r *rand.Rand) (time.Duration, error) {
		return cycle(ctx, c, i*parts+part, r)
	}
	return w
}

func callersText(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

func workloadOf(name string) (workload, error) {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		var names []string
		for _, w := range workloads {
			names = append(names, w.name)
		}
		return workload{}, fmt.Errorf("no workload %q: there are %s", name, strings.Join(names, ", "))
	}
	return workloads[i], nil
}

// timed acquires, measures, and releases.
func timed(ctx context.Context, acquire func() (func(context.Context) error, error)) (time.Duration, error) {
	begun := time.Now()
	release, err := acquire()
	took := time.Since(begun)
	if err != nil {
		return took, err
	}
	return took, release(ctx)
}

func own(ctx context.Context, c caller, i int, _ *rand.Rand) (time.Duration, error) {
	return timed(ctx, func() (func(context.Context) error, error) { return c.acquire(ctx, fmt.Sprint("own-", i)) })
}

// ownLazy is own, with a release that goes with the next request. A system without such a
// release waits for it.
func ownLazy(ctx context.Context, c caller, i int, r *rand.Rand) (time.Duration, error) {
	l, ok := c.(lazyCaller)
	if !ok {
		return own(ctx, c, i, r)
	}
	return timed(ctx, func() (func(context.Context) error, error) { return l.acquireLazy(ctx, fmt.Sprint("own-", i)) })
}

// again is own with a key that stays with the caller. A system without such keys asks.
func again(ctx context.Context, c caller, i int, r *rand.Rand) (time.Duration, error) {
	s, ok := c.(stickyCaller)
	if !ok {
		return own(ctx, c, i, r)
	}
	return timed(ctx, func() (func(context.Context) error, error) { return s.acquireSticky(ctx, "again") })
}

func hot(ctx context.Context, c caller, _ int, _ *rand.Rand) (time.Duration, error) {
	return timed(ctx, func() (func(context.Context) error, error) { return c.acquire(ctx, "hot") })
}

// zipf takes one of n keys, the k-th with a probability that falls with k^-0.99.
func zipf(n int) func(context.Context, caller, int, *rand.Rand) (time.Duration, error) {
	sums := make([]float64, n)
	sum := 0.0
	for k := range n {
		sum += math.Pow(float64(k+1), -0.99)
		sums[k] = sum
	}
	return func(ctx context.Context, c caller, _ int, r *rand.Rand) (time.Duration, error) {
		k, _ := slices.BinarySearch(sums, r.Float64()*sum)
		return timed(ctx, func() (func(context.Context) error, error) { return c.acquire(ctx, fmt.Sprint("zipf-", k)) })
	}
}

// set takes n keys of the caller at once.
func set(n int) func(context.Context, caller, int, *rand.Rand) (time.Duration, error) {
	return func(ctx context.Context, c caller, i int, _ *rand.Rand) (time.Duration, error) {
		s, ok := c.(setCaller)
		if !ok {
			return 0, errNotHad
		}
		keys := make([]string, n)
		for k := range keys {
			keys[k] = fmt.Sprintf("set-%d-%d", i, k)
		}
		return timed(ctx, func() (func(context.Context) error, error) { return s.acquireAll(ctx, keys) })
	}
}

// readers takes one of n keys, as a reader with probability p.
func readers(n int, p float64) func(context.Context, caller, int, *rand.Rand) (time.Duration, error) {
	return func(ctx context.Context, c caller, _ int, r *rand.Rand) (time.Duration, error) {
		s, ok := c.(sharedCaller)
		if !ok {
			return 0, errNotHad
		}
		key := fmt.Sprint("read-", r.IntN(n))
		return timed(ctx, func() (func(context.Context) error, error) {
			return s.acquireShared(ctx, key, r.Float64() >= p)
		})
	}
}

// A result is the outcome of one turn.
type result struct {
	each     []uint64 // cycles of each caller
	acquires histogram
	err      error // the first
}

// run runs the callers until ctx ends. A cycle that has begun is completed and counted.
// perSecond is the rate of an open loop, 0 for a closed one.
func (w workload) run(ctx context.Context, callers []caller, perSecond float64) result {
	if perSecond > 0 {
		return w.runOpen(ctx, callers, perSecond)
	}
	results := make([]result, len(callers))
	counts := make([]uint64, len(callers))
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			for ctx.Err() == nil {
				took, err := w.cycle(context.WithoutCancel(ctx), c, i, random)
				if err != nil {
					results[i].err = err
					return
				}
				counts[i]++
				results[i].acquires.add(took)
			}
		})
	}
	wg.Wait()
	out := result{each: counts}
	for i := range results {
		out.acquires.merge(&results[i].acquires)
		out.err = errors.Join(out.err, results[i].err)
	}
	return out
}

// runOpen begins cycles at the times of a Poisson process, however long earlier cycles
// take, and measures from the planned begin. So a system that stands still pays for every
// request planned for the time of the standstill.
func (w workload) runOpen(ctx context.Context, callers []caller, perSecond float64) result {
	type request struct{ due time.Time }
	due := make(chan request, 1<<16)
	results := make([]result, len(callers))
	counts := make([]uint64, len(callers))
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			for r := range due {
				waited := time.Since(r.due)
				took, err := w.cycle(context.WithoutCancel(ctx), c, i, random)
				if err != nil {
					results[i].err = errors.Join(results[i].err, err)
					continue
				}
				counts[i]++
				results[i].acquires.add(waited + took)
			}
		})
	}
	next := time.Now()
	for ctx.Err() == nil {
		next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second)))
		if wait := time.Until(next); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		due <- request{next}
	}
	close(due)
	wg.Wait()
	out := result{each: counts}
	for i := range results {
		out.acquires.merge(&results[i].acquires)
		out.err = errors.Join(out.err, results[i].err)
	}
	return out
}
