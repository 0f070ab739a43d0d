//go:build linux

package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/history"
)

// fault is a kind of fault. do makes the fault, waits, and heals. An error of do means: this
// host cannot make the fault, or, with errNobody, no member could have the fault.
type fault struct {
	weight   int
	ends     bool // a process
	majority bool // ends so many that a cluster in memory is lost
	writes   bool // hits the next write of a disk
	vote     bool // may cost a voter its disk for good: a disk that refused a write counts as lost
	needs    func(k kind) bool
	times    [2]float64 // the least and the most length, in TTLs; 0, 0: a tenth of one to two
	do       func(x *fighter, s step) error
}

func (f fault) fits(k kind) bool { return f.needs == nil || f.needs(k) }

func (f fault) least(k kind) time.Duration {
	if f.times[1] == 0 {
		return k.TTL / 10
	}
	return time.Duration(f.times[0] * float64(k.TTL))
}

func (f fault) most(k kind) time.Duration {
	if f.times[1] == 0 {
		return 2 * k.TTL
	}
	return time.Duration(f.times[1] * float64(k.TTL))
}

// fighter plays a schedule in a town.
type fighter struct {
	w       *town
	ctx     context.Context // ends with the schedule: faults are healed then
	healing sync.WaitGroup
	disks   sync.Map // of members with a sick disk

	mu      sync.Mutex
	made    map[string]int
	idle    map[string]int    // faults that hit nothing, which do not count as made
	missing map[string]string // why a kind could not be made
	rotated int
	begun   time.Time // of the last step of a rotation
}

// wait waits for the length of a step.
func (x *fighter) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-x.ctx.Done():
	case <-t.C:
	}
}

// play plays a schedule and returns when all faults are healed.
func (x *fighter) play(steps []step) {
	began := time.Now()
	for _, s := range steps {
		x.wait(s.At - time.Since(began))
		if x.ctx.Err() != nil {
			break
		}
		x.healing.Go(func() {
			x.w.rec.Mark(history.Fault, "", s.String())
			err := faults[s.Fault].do(x, s)
			x.mu.Lock()
			defer x.mu.Unlock()
			switch {
			case err == nil:
				x.made[s.Fault]++
			case errors.Is(err, errIdle):
				x.idle[s.Fault]++
			case !errors.Is(err, errNobody):
				x.missing[s.Fault] = err.Error()
			}
		})
	}
	x.healing.Wait()
}

// errNobody: the member that a fault needs does not run, or has such a fault already.
var errNobody = errors.New("nobody to hit")

// member returns the running process of a member: of the leader, the holder of x0, or by
// number.
func (x *fighter) member(who string, s step) *house {
	i := s.Who % x.w.kind.Members
	switch who {
	case "leader":
		i = x.w.leader(newRand(uint64(s.Who), 2))
	case "holder":
		process := x.w.store.user(fmt.Sprint("x", s.Who%3))
		for j := range x.w.kind.Members {
			if h := x.w.house(j); h != nil && h.process == process {
				i = j
			}
		}
	}
	if h := x.w.house(i); h != nil && !h.p.Ended() {
		return h
	}
	return nil
}

// kill kills the process of a member, and starts the next one after a while.
func (x *fighter) kill(h *house, after time.Duration, before func()) error {
	if h == nil {
		return errNobody
	}
	h.mu.Lock()
	already := h.killed
	h.killed = true
	h.mu.Unlock()
	if already {
		return errNobody
	}
	h.kill()
	if before != nil {
		before()
	}
	x.wait(after)
	_, err := x.w.start(h.i)
	return err
}

func killOf(who string) func(x *fighter, s step) error {
	return func(x *fighter, s step) error { return x.kill(x.member(who, s), s.For, nil) }
}

// several makes a fault of each of some members at once.
func several(hs []*house, f func(h *house) error) error {
	errs := make([]error, len(hs))
	var wg sync.WaitGroup
	for i, h := range hs {
		wg.Go(func() { errs[i] = f(h) })
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errNobody
}

// some returns n running members; with leader the leader is among them.
func (x *fighter) some(n int, leader bool, s step) (hs []*house) {
	order := newRand(uint64(s.Who), 3).Perm(x.w.kind.Members)
	first := x.w.leader(newRand(uint64(s.Who), 2))
	if leader {
		if h := x.w.house(first); h != nil && !h.p.Ended() {
			hs = append(hs, h)
		}
	}
	for _, i := range order {
		if h := x.w.house(i); len(hs) < n && h != nil && !h.p.Ended() && (!leader || i != first) {
			hs = append(hs, h)
		}
	}
	return hs
}

func (x *fighter) stop(hs []*house, d time.Duration) error {
	if len(hs) == 0 || hs[0] == nil {
		return errNobody
	}
	for _, h := range hs {
		h.stop()
	}
	x.wait(d)
	for _, h := range hs {
		h.cont()
	}
	return nil
}

func stopOf(who string) func(x *fighter, s step) error {
	return func(x *fighter, s step) error { return x.stop([]*house{x.member(who, s)}, s.For) }
}

// cut cuts ways, waits, and heals them.
func (x *fighter) cut(ways [][2]int, d time.Duration) error {
	if x.w.net == nil {
		return x.w.noNet
	}
	var err error
	for _, way := range ways {
		err = errors.Join(err, x.w.net.Cut(way[0], way[1]))
	}
	x.wait(d)
	for _, way := range ways {
		err = errors.Join(err, x.w.net.Heal(way[0], way[1]))
	}
	return err
}

// around returns the ways from and to some members, from and to all others.
func (w *town) around(out, in bool, members ...int) (ways [][2]int) {
	inside := make(map[int]bool)
	for _, i := range members {
		inside[i] = true
	}
	for i := range w.kind.Members {
		for j := range w.kind.Members {
			if inside[i] && !inside[j] {
				if out {
					ways = append(ways, [2]int{i, j})
				}
				if in {
					ways = append(ways, [2]int{j, i})
				}
			}
		}
	}
	return ways
}

// chosen returns the member of a cut: the leader half of the time.
func (x *fighter) chosen(s step) int {
	if s.Who%2 == 0 {
		return x.w.leader(newRand(uint64(s.Who), 2))
	}
	return s.Who % x.w.kind.Members
}

func cutOf(out, in bool) func(x *fighter, s step) error {
	return func(x *fighter, s step) error { return x.cut(x.w.around(out, in, x.chosen(s)), s.For) }
}

// ring leaves each member with a majority of neighbours, different for each.
func (x *fighter) ring(s step) error {
	order := newRand(uint64(s.Who), 4).Perm(x.w.kind.Members)
	n, reach := len(order), (len(order)/2+1)/2
	var ways [][2]int
	for i := range n {
		for j := range n {
			if d := (j - i + n) % n; d > reach && n-d > reach {
				ways = append(ways, [2]int{order[i], order[j]})
			}
		}
	}
	return x.cut(ways, s.For)
}

// loss drops packets on the ways from a member to all others.
func (x *fighter) loss(s step) error {
	if x.w.net == nil {
		return x.w.noNet
	}
	i := x.chosen(s)
	var err error
	each := func(percent int) {
		for j := range x.w.kind.Members {
			if j != i {
				err = errors.Join(err, x.w.net.Lose(i, j, percent))
			}
		}
	}
	each(10 + s.Who%40)
	x.wait(s.For)
	each(0)
	return err
}

func (x *fighter) slow(s step) error {
	if x.w.net == nil {
		return x.w.noNet
	}
	i := x.chosen(s)
	err := x.w.net.Slow(i)
	x.wait(s.For)
	return errors.Join(err, x.w.net.Hasten(i))
}

// limited puts a member into a control group.
func (x *fighter) limited(s step, dir string, err error) error {
	h := x.member("", s)
	switch {
	case err != nil:
		return err
	case h == nil:
		return errNobody
	}
	home := origin(dir, h.p.Pid())
	if err := put(dir, h.p.Pid()); err != nil {
		return err
	}
	if dir == x.w.limits.cpu {
		x.w.rec.Mark(starved, h.process, "")
		defer x.w.rec.Mark(fed, h.process, "")
	}
	x.wait(s.For)
	if h.p.Ended() {
		return nil
	}
	return put(home, h.p.Pid())
}

// rolling restarts all members in turn, each when the last is ready.
func (x *fighter) rolling(step) error {
	for i := range x.w.kind.Members {
		if x.ctx.Err() != nil {
			return nil
		}
		if err := x.restart(x.w.house(i), 0); err != nil {
			continue
		}
		if h := x.w.house(i); h != nil {
			_, _ = h.ask("ready", "", 10*time.Second)
		}
	}
	return nil
}

// restart ends a member by SIGTERM and starts the next process.
func (x *fighter) restart(h *house, after time.Duration) error {
	if h == nil {
		return errNobody
	}
	h.mu.Lock()
	taken := h.killed || h.stopped > 0
	h.killed = h.killed || !taken
	h.mu.Unlock()
	if taken {
		return errNobody
	}
	h.terminate()
	x.wait(after)
	_, err := x.w.start(h.i)
	return err
}

// rotate makes the next of the three steps in which a secret is replaced. The last step
// comes half a minute after the second, as SetSecrets asks.
func (x *fighter) rotate(step) error {
	x.mu.Lock()
	if x.rotated%3 == 2 && time.Since(x.begun) < 30*time.Second {
		x.mu.Unlock()
		return errNobody
	}
	x.rotated, x.begun = x.rotated+1, time.Now()
	phase := x.rotated % 3
	x.mu.Unlock()
	x.w.mu.Lock()
	switch now := x.w.secrets; phase {
	case 1:
		x.w.secrets = [][]byte{now[0], cluster.NewSecret()}
	case 2:
		x.w.secrets = [][]byte{now[1], now[0]}
	case 0:
		x.w.secrets = [][]byte{now[0]}
	}
	all := x.w.secrets
	x.w.mu.Unlock()
	for i := range x.w.kind.Members {
		if h := x.w.house(i); h != nil && !h.p.Ended() {
			h.begin(command{Do: "secrets", List: all, Wait: time.Second})
		}
	}
	return nil
}

// clock sets the wall clock of a member, as the library sees it, up to a day forward or
// back. The clock of the host is not the test's to set.
func (x *fighter) clock(s step) error {
	var own []*house
	for i := range x.w.kind.Members {
		if h := x.w.house(i); i%3 == 2 && h != nil && !h.p.Ended() {
			own = append(own, h)
		}
	}
	if len(own) == 0 {
		return errNobody
	}
	r := rand.New(rand.NewPCG(uint64(s.Who), 5))
	own[r.IntN(len(own))].begin(command{Do: "clock", N: r.Int64N(int64(48*time.Hour)) - int64(24*time.Hour), Wait: time.Second})
	return nil
}

// oom bounds the memory that a member may take from now on.
func (x *fighter) oom(s step) error {
	return x.limited(s, x.w.limits.memory, x.w.limits.memoryErr)
}

// quitAll ends all members at once, in either of two ways, and starts the next processes.
func (x *fighter) quitAll(s step) error {
	return several(x.some(x.w.kind.Members, false, s), func(h *house) error {
		if s.Who%3 == 0 {
			return x.restart(h, s.For/4)
		}
		return x.kill(h, s.For/4+time.Duration(h.i)*s.For/8, nil)
	})
}
