//go:build linux

package storm

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

func onDisk(k kind) bool   { return k.Dir }
func flushes(k kind) bool  { return k.Dir && k.Sync != cluster.SyncBoot }
func bearsAll(k kind) bool { return k.Dir || k.Complete }

// faults are the kinds of faults of random schedules.
var faults map[string]fault

func init() {
	long := [2]float64{0.3, 2.5}
	faults = map[string]fault{
		// Processes that end.
		"kill":        {weight: 4, ends: true, do: killOf("")},
		"kill leader": {weight: 4, ends: true, do: killOf("leader")},
		"kill holder": {weight: 4, ends: true, do: killOf("holder")},
		"kill two": {weight: 2, ends: true, majority: true, needs: bearsAll, do: func(x *fighter, s step) error {
			return several(x.some(2, true, s), func(h *house) error { return x.kill(h, s.For, nil) })
		}},
		"kill all": {weight: 1, ends: true, majority: true, needs: bearsAll, do: (*fighter).quitAll},
		"lost disk": {weight: 2, vote: true, ends: true, needs: onDisk, do: func(x *fighter, s step) error {
			h := x.member("", s)
			if h == nil {
				return errNobody
			}
			return x.kill(h, s.For, x.w.disks[h.i].wipe)
		}},
		"restart": {weight: 3, ends: true, do: func(x *fighter, s step) error { return x.restart(x.member("", s), s.For) }},
		"rolling": {weight: 1, ends: true, needs: bearsAll, do: (*fighter).rolling},
		"memory":  {weight: 1, ends: true, do: (*fighter).oom},

		// Processes that stand still.
		"stop":        {weight: 3, times: long, do: stopOf("")},
		"stop leader": {weight: 4, times: long, do: stopOf("leader")},
		"stop holder": {weight: 4, times: long, do: stopOf("holder")},
		"stop leader and member": {weight: 3, times: long, do: func(x *fighter, s step) error {
			return x.stop(x.some(2, true, s), s.For)
		}},
		"stop all": {weight: 1, times: long, do: func(x *fighter, s step) error {
			return x.stop(x.some(x.w.kind.Members, false, s), s.For)
		}},
		"cpu": {weight: 2, times: long, do: func(x *fighter, s step) error {
			return x.limited(s, x.w.limits.cpu, x.w.limits.cpuErr)
		}},

		// The network.
		"cut":     {weight: 4, times: long, do: cutOf(true, true)},
		"cut out": {weight: 3, times: long, do: cutOf(true, false)},
		"cut in":  {weight: 3, times: long, do: cutOf(false, true)},
		"cut pair": {weight: 3, times: long, do: func(x *fighter, s step) error {
			i := x.chosen(s)
			return x.cut([][2]int{{i, (i + 1 + s.Who%(x.w.kind.Members-1)) % x.w.kind.Members}}, s.For)
		}},
		"cut minority": {weight: 3, times: long, do: func(x *fighter, s step) error {
			i := x.chosen(s)
			return x.cut(x.w.around(true, true, i, (i+1)%x.w.kind.Members), s.For)
		}},
		"ring": {weight: 2, times: long, do: (*fighter).ring},
		"loss": {weight: 2, times: long, do: (*fighter).loss},
		"slow": {weight: 1, times: long, do: (*fighter).slow},
		"stop and cut leader and member": {weight: 3, times: long, do: func(x *fighter, s step) error {
			hs := x.some(2, true, s)
			if len(hs) < 2 {
				return errNobody
			}
			ways := x.w.around(true, true, hs[0].i, hs[1].i)
			var stopped sync.WaitGroup
			stopped.Go(func() { _ = x.stop(hs, s.For) })
			err := x.cut(ways, s.For*3/2)
			stopped.Wait()
			return err
		}},

		// Disks.
		"disk full":  {weight: 2, vote: true, needs: onDisk, times: long, do: (*fighter).full},
		"disk fails": {weight: 2, vote: true, writes: true, needs: onDisk, times: long, do: commanded("fail", 0)},
		"disk hangs": {weight: 2, writes: true, needs: onDisk, times: long, do: commanded("hang", 150*time.Millisecond)},
		"disk slow":  {weight: 2, writes: true, needs: onDisk, times: long, do: commanded("slow", 75*time.Millisecond)},
		"sync fails": {weight: 1, vote: true, writes: true, needs: flushes, times: long, do: traced("error=EIO", "INJECTED")},
		"sync slow":  {weight: 1, writes: true, needs: flushes, times: long, do: traced("delay_enter=100000", "DELAYED")},

		// Changes without harm, which must do none.
		"rotate": {weight: 3, needs: func(k kind) bool { return k.Secrets }, do: (*fighter).rotate},
		"clock":  {weight: 2, needs: func(k kind) bool { return k.Shifted }, do: (*fighter).clock},
	}
}
