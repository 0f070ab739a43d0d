package term_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// The keys that many streams of one process, and of many, show are counted in the budget, and
// leave room for the keys of others. Each stream has room for some, and what an ended stream has
// shown counts no more.
func TestShownKeysOfManyStreamsAreBounded(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		h.budget = budget.New(nil)
		many := make([]machine.SessionKey, wire.MaxAttach)
		for i := range many {
			binary.BigEndian.PutUint64(many[i][:], 1<<40+uint64(i))
		}
		show := func(p *peer, keys []machine.SessionKey) bool {
			return p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: keys})).Code == wire.CodeOK
		}
		var open []*peer
		for i, name := range []string{"n2", "n3", "n4"} {
			all, want := 0, budget.RequestsPerMember/2/(64*wire.MaxAttach)
			if i == 2 {
				want = 0 // the two have the bound of the address
			}
			for range 12 {
				p := h.enter(name, 7)
				open = append(open, p)
				if show(p, many) {
					all++
				}
			}
			if all != want {
				t.Errorf("%s shows all keys on %d streams, want %d", name, all, want)
			}
		}
		if n := h.budget.Held(); n == 0 || n > budget.RequestsPerAddress/2 {
			t.Errorf("%d bytes are counted", n)
		}
		late := h.enter("n5", 7)
		if !show(late, many[:256]) {
			t.Error("a stream has no room for few keys")
		}
		if show(late, many[256:512]) {
			t.Error("a full budget takes keys")
		}
		for _, p := range open {
			p.Close()
			<-p.served
		}
		if !show(late, many[256:512]) {
			t.Error("what ended streams have shown counts")
		}
		// What was not kept cannot open a session; what was kept can.
		h.must(late, machine.Open{Session: many[300].ID(), Client: "t", Node: "n5", Boot: 7, TTL: uint64(ttl / time.Millisecond)})
		late.Close()
		<-late.served
		synctest.Wait()
		if n := h.budget.Held(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// Sessions that their process has left while open are counted too.
func TestLeftSessionsAreCounted(t *testing.T) {
	onHeist(t, func(h *heist) {
		h.budget = budget.New(nil)
		p := h.enter("n2", 7)
		var keys []machine.SessionKey
		for i := range 600 {
			keys = append(keys, machine.SessionKey{199, byte(i), byte(i >> 8)})
		}
		h.show(p, keys...)
		for i, key := range keys {
			h.must(p, machine.Open{Session: key.ID(), Client: fmt.Sprint("c", i), Node: "n2", Boot: 7, TTL: uint64(ttl / time.Millisecond)})
		}
		synctest.Wait()
		before := h.budget.Held()
		for _, key := range keys {
			id := key.ID()
			_ = p.Notify(wire.Detach, id[:])
		}
		synctest.Wait()
		if after := h.budget.Held(); before == 0 || after != before {
			h.t.Errorf("600 open sessions: %d bytes are counted, after they were left %d", before, after)
		}
	})
}
