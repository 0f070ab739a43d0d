package term_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/shards"
	"github.com/wardmote/wardmote/internal/term"
)

// BenchmarkFirstPlanOfTheLargestGroup has the steps of the first plan of 16,384 shards
// for 1,000 callers, and of the other changes of such a group, each with its median time.
// All but the plan stop the table for that time.
func BenchmarkFirstPlanOfTheLargestGroup(b *testing.B) {
	times := make(map[string][]time.Duration)
	measure := func(step string, f func()) {
		began := time.Now()
		f()
		times[step] = append(times[step], time.Since(began))
	}
	for b.Loop() {
		table := foundedTable()
		apply := func(step string, c machine.Command) {
			b.Helper()
			entry := machine.EncodeCommands([]machine.Command{c})
			term.Expect(table, entry, []machine.Command{c}) // as on the leader
			var out any
			measure(step, func() { out = table.Apply(entry, time.Now()) })
			if code := out.([]machine.Outcome)[0].Code; code != machine.OK && code != machine.Granted {
				b.Fatalf("%s: %v", step, code)
			}
		}
		id := func(i int) machine.SessionID { return machine.SessionID{2, byte(i), byte(i >> 8)} }
		for i := range machine.MaxCallers {
			apply("open", machine.Open{Session: id(i), Client: fmt.Sprint("client-", i), Node: fmt.Sprint("n", i%4), TTL: 3000})
			apply("enlist", machine.Enlist{Session: id(i), Seq: 1, Group: "g", Shards: machine.MaxShards, Weight: 1})
		}
		var st machine.GroupStatus
		var assigned []uint32
		measure("read", func() {
			table.View(func(m *machine.State) {
				st, _ = m.Group("g")
				assigned = m.Assignment("g", nil)
			})
		})
		callers := make([]shards.Caller, len(st.Callers))
		for i := range callers {
			callers[i].Weight = 1
		}
		all := make([]shards.Shard, len(assigned))
		for i := range all {
			all[i] = shards.Shard{To: -1, Held: -1}
		}
		var moves []shards.Move
		measure("plan", func() { moves = shards.Plan(callers, all, shards.Options{Balance: true}) })
		cmd := machine.Assign{Term: 1, Group: "g", Version: st.Version}
		for _, m := range moves {
			cmd.Moves = append(cmd.Moves, machine.Move{Shard: uint32(m.Shard), Caller: st.Callers[m.To].ID})
		}
		apply("assign", cmd)
		for i, m := range cmd.Moves {
			apply("acquire", machine.Acquire{Session: st.Callers[moves[i].To].Session, Seq: uint64(2 + i), Key: machine.ShardKey("g", m.Shard)})
		}
		measure("keys", func() {
			table.View(func(m *machine.State) {
				for i := range uint32(term.KeysAtOnce) {
					m.Owner(machine.ShardKey("g", i))
				}
			})
		})
		apply("delist", machine.Delist{Session: id(7), Seq: 1})
		apply("close", machine.Close{Session: id(8)})
		apply("resize", machine.Resize{Session: id(9), Seq: 50_000, Group: "g", From: machine.MaxShards, To: 1000})
		for i := range machine.MaxCallers {
			if i != 8 {
				apply("close", machine.Close{Session: id(i)})
			}
		}
		table.View(func(m *machine.State) { st, _ = m.Group("g") })
		apply("reshard", machine.Reshard{Term: 1, Group: "g", Version: st.Version})
	}
	for step, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, step+"-ms")
	}
}
