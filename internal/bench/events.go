package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"
)

// heldKeys is the number of keys that the events hold.
const heldKeys = 1_000_000

func keysOf(smoke bool) int {
	if smoke {
		return heldKeys / 100
	}
	return heldKeys
}

// attemptEvery is the pause between the begins of two attempts of one grant. A request that
// was under way to a dead leader may wait for a timeout of seconds, and says nothing about
// later requests.
const attemptEvery = 20 * time.Millisecond

// attempts begins tries until one succeeds, and returns the time of the first success.
func attempts(ctx context.Context, try func(ctx context.Context, n int) error) (time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	tick := time.NewTicker(attemptEvery)
	defer tick.Stop()
	done := make(chan time.Time, 1)
	for n := 0; ; n++ {
		wg.Go(func() {
			if try(ctx, n) != nil {
				return
			}
			select {
			case done <- time.Now():
			default:
			}
		})
		select {
		case at := <-done:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-tick.C:
		}
	}
}

// grantKeys counts the keys of grants: each is new.
var grantKeys int

// firstGrant waits until each of some members has granted a new key, and returns the
// time of the first grant.
func firstGrant(ctx context.Context, m mortal, of []int) (time.Time, error) {
	times, errs := make([]time.Time, len(of)), make([]error, len(of))
	var wg sync.WaitGroup
	for n, i := range of {
		grantKeys++
		key := fmt.Sprintf("grant-%d-", grantKeys)
		wg.Go(func() { times[n], errs[n] = m.grant(ctx, i, key) })
	}
	wg.Wait()
	return slices.MinFunc(times, time.Time.Compare), errors.Join(errs...)
}

// leaderEvent ends the leader's process, or stops it, and measures the time until another
// member grants a key. Then the process is back.
func leaderEvent(s syscall.Signal) func(context.Context, system, bool) ([]figure, error) {
	return func(ctx context.Context, sys system, _ bool) ([]figure, error) {
		m, ok := sys.(mortal)
		if !ok {
			return nil, errNotHad
		}
		all := []int{0, 1, 2}
		if _, err := firstGrant(ctx, m, all); err != nil {
			return nil, err
		}
		l, err := m.leader(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if s == syscall.SIGKILL {
			m.kill(l)
		} else if err := m.signal(l, s); err != nil {
			return nil, err
		}
		first, err := firstGrant(ctx, m, []int{(l + 1) % 3, (l + 2) % 3})
		if s == syscall.SIGKILL {
			err = errors.Join(err, m.start(ctx, l))
		} else {
			err = errors.Join(err, m.signal(l, syscall.SIGCONT))
		}
		if err == nil {
			_, err = firstGrant(ctx, m, all)
		}
		return []figure{{"next grant after", sinceWall(begun, first).Seconds() * 1000, "ms"}}, err
	}
}

// sinceWall returns the time between two readings of the host's clock, by two processes.
func sinceWall(a, b time.Time) time.Duration { return b.Round(0).Sub(a.Round(0)) }

// restartEvent kills all members while their clients hold many keys, and measures the time
// until they are up again, and until the first grant.
func restartEvent(ctx context.Context, sys system, smoke bool) ([]figure, error) {
	m, ok := sys.(mortal)
	if !ok {
		return nil, errNotHad
	}
	all := []int{0, 1, 2}
	if w, ok := sys.(*wardmoteProcesses); ok && w.members[0].spec.Dir == "" {
		return nil, errNotDurable
	}
	if _, err := firstGrant(ctx, m, all); err != nil {
		return nil, err
	}
	begun := time.Now()
	n := keysOf(smoke)
	if err := m.fill(ctx, n); err != nil {
		return nil, err
	}
	filled := time.Since(begun)
	for _, i := range all {
		m.kill(i)
	}
	begun = time.Now()
	if err := m.start(ctx, all...); err != nil {
		return nil, err
	}
	ready := time.Since(begun)
	first, err := firstGrant(ctx, m, all)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"all ready after", ready.Seconds(), "s"}, {"first grant after", sinceWall(begun, first).Seconds(), "s"},
		{"keys", float64(n) / 1000, "thousand"}, {"filled at", filled.Seconds() * 1e6 / float64(n), "µs a key"},
	}, nil
}

// keeper is a system in which clients of one process can hold many keys.
type keeper interface {
	// hold has new clients of one process hold n keys, as few clients as the system
	// allows. end ends them at once.
	hold(ctx context.Context, n int) (end func(context.Context) error, err error)
}

// heldEvent has one process hold many keys. Meanwhile, and while its clients end, callers at
// all members acquire and release keys of their own.
func heldEvent(ctx context.Context, sys system, smoke bool) ([]figure, error) {
	k, ok := sys.(keeper)
	if !ok {
		return nil, errNotMeasured
	}
	w := workload{callers: 3, cycle: own}
	var callers []caller
	for i := range w.callers {
		c, err := sys.caller(ctx, everywhere, i, false)
		if err != nil {
			return nil, err
		}
		callers = append(callers, c)
	}
	turn := func(until func(context.Context) error) (result, time.Duration, error) {
		turn, cancel := context.WithCancel(ctx)
		done := make(chan result)
		begun := time.Now()
		go func() { done <- w.run(turn, callers, 0) }()
		err := until(ctx)
		cancel()
		r := <-done
		return r, time.Since(begun), errors.Join(err, r.err)
	}
	length := time.Second
	if smoke {
		length /= 10
	}
	aWhile := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(length):
			return nil
		}
	}
	if _, _, err := turn(aWhile); err != nil { // connections, sessions
		return nil, err
	}
	before, took, err := turn(aWhile)
	if err != nil {
		return nil, err
	}
	free := float64(before.acquires.n) / took.Seconds()
	empty, n := heapNow(), keysOf(smoke)
	begun := time.Now()
	end, err := k.hold(ctx, n)
	if err != nil {
		return nil, err
	}
	filled := time.Since(begun)
	heap := heapNow() - empty
	during, took, err := turn(aWhile)
	if err != nil {
		return nil, err
	}
	held := float64(during.acquires.n) / took.Seconds()
	after, took, err := turn(end)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"keys", float64(n) / 1000, "thousand"}, {"taken at", filled.Seconds() * 1e6 / float64(n), "µs a key"},
		{"heap of three members and the clients", heap / float64(n), "B a key"},
		{"rate of 3 other callers, held / free", held / free, ""},
		{"the clients' end", took.Seconds() * 1000, "ms"},
		{"longest acquire of the others meanwhile", after.acquires.longest.Seconds() * 1000, "ms"},
	}, nil
}

// heapNow returns the bytes of living objects in this process.
func heapNow() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
