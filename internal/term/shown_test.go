package term_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/refused"
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

// Open sessions find room although others have filled the bound, on a few streams of their process: the
// oldest one ends for a further one. Nobody keeps the key of another process's session.
func TestOpenSessionsFindRoom(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		h.budget = budget.New(nil)
		fill := make([]machine.SessionKey, wire.MaxAttach)
		for i := range fill {
			binary.BigEndian.PutUint64(fill[i][:], 1<<40+uint64(i))
		}
		attach := func(p *peer, keys, fresh []machine.SessionKey) wire.Code {
			return p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: keys, New: fresh})).Code
		}
		for _, name := range []string{"n3", "n4"} {
			for range 9 {
				attach(h.enter(name, 7), nil, fill)
			}
		}
		synctest.Wait()
		full := h.budget.Held()
		var own []machine.SessionKey
		for i := range 600 {
			own = append(own, machine.SessionKey{199, byte(i), byte(i >> 8)})
		}
		streams := []*peer{h.enter("n2", 7)}
		for _, key := range own { // one after the other: each finds the room of the stream
			h.show(streams[0], key)
			h.must(streams[0], machine.Open{Session: key.ID(), Client: "t", Node: "n2", Boot: 7, TTL: uint64(ttl / time.Millisecond)})
		}
		beat := func(p *peer, key machine.SessionKey) wire.Code {
			id := key.ID()
			return p.ask(wire.Beat, id[:]).Code
		}
		for i := range 5 {
			p := h.enter("n2", 7)
			streams = append(streams, p)
			if c := attach(p, own, nil); c != wire.CodeOK {
				t.Errorf("stream %d of the process attaches with %v", i+2, c)
			}
			for _, key := range []machine.SessionKey{own[0], own[len(own)-1]} {
				if c := beat(p, key); c != wire.CodeOK {
					t.Errorf("a beat on stream %d of the process: %v", i+2, c)
				}
			}
		}
		synctest.Wait()
		for i, p := range streams {
			select {
			case <-p.served:
				if i > 1 {
					t.Errorf("stream %d of the process has ended", i+1)
				}
			default:
				if i <= 1 {
					t.Errorf("stream %d of the process goes on", i+1)
				}
			}
		}
		for i, p := range streams[2:] {
			if c := beat(p, own[500]); c != wire.CodeOK {
				t.Errorf("a beat on stream %d of the last four: %v", i+1, c)
			}
		}
		thief := h.enter("n5", 7)
		attach(thief, own, nil)
		synctest.Wait()
		if n := h.budget.Held(); n != full {
			t.Errorf("%d bytes are counted, %d before", n, full)
		}
		if c := beat(thief, own[0]); c != wire.CodeStranger {
			t.Errorf("a beat for another's session: %v", c)
		}
		if open, fresh := h.Term().Shown("n5"); open+fresh != 0 {
			t.Errorf("%d keys of another's sessions are kept", open+fresh)
		}
	})
}

// A key that found no room is asked for again once its session is open, and that is no theft.
func TestAKeyIsShownAgain(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		h.budget = budget.New(nil)
		var many []machine.SessionKey
		for i := range wire.MaxAttach {
			many = append(many, machine.SessionKey{199, byte(i), byte(i >> 8)})
		}
		for _, name := range []string{"n3", "n4"} {
			for range 9 {
				h.enter(name, 7).ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: many}))
			}
		}
		p, other := h.enter("n2", 7), h.enter("n2", 7)
		h.show(p, many[:256]...)
		late := many[600]
		id := late.ID()
		if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: []machine.SessionKey{late}})); f.Code != wire.CodeBusy {
			t.Fatalf("shown beyond the bound: %v", f.Code)
		}
		open := machine.Open{Session: id, Client: "t", Node: "n2", Boot: 7, TTL: 3000}
		h.show(other, late)
		h.must(other, open)
		refusals := h.refused.Counts()[refused.Session]
		for name, ask := range map[string]func() wire.Code{
			"a beat":    func() wire.Code { return p.ask(wire.Beat, id[:]).Code },
			"a request": func() wire.Code { _, c := p.propose(machine.Acquire{Session: id, Seq: 1, Key: "late"}); return c },
			"its Open":  func() wire.Code { _, c := p.propose(open); return c },
			"another one": func() wire.Code {
				_, c := p.propose(machine.Open{Session: h.id, Client: "t", Node: "n2", Boot: 7, TTL: 3000})
				return c
			},
		} {
			if c := ask(); c != wire.CodeStranger {
				t.Errorf("%s without the key: %v", name, c)
			}
		}
		_ = p.Notify(wire.Detach, id[:])
		if n := h.refused.Counts()[refused.Session] - refusals; n != 1 {
			t.Errorf("%d refusals were counted, want that of another's session", n)
		}
		h.show(p, late)
		if f := p.ask(wire.Beat, id[:]); f.Code != wire.CodeOK {
			t.Errorf("a beat after the key was shown again: %v", f.Code)
		}
	})
}

// An Open whose key found no room is told to wait, also when there is room by then: it is no theft.
func TestAKeyWithoutRoomIsNoTheft(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		h.budget = budget.New(nil)
		p := h.enter("n2", 7)
		var many []machine.SessionKey
		for i := range wire.MaxAttach {
			many = append(many, machine.SessionKey{199, byte(i), byte(i >> 8)})
		}
		h.show(p, many[:300]...)
		var others []*peer
		for _, name := range []string{"n3", "n4"} {
			for range 9 {
				others = append(others, h.enter(name, 7))
				others[len(others)-1].ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: many}))
			}
		}
		late := many[600]
		if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: many[300:601]})); f.Code != wire.CodeBusy {
			t.Fatalf("shown beyond the bound: %v", f.Code)
		}
		for _, o := range others {
			o.Close()
			<-o.served
		}
		refusals := h.refused.Counts()[refused.Session]
		if _, code := p.propose(machine.Open{Session: late.ID(), Client: "t", Node: "n2", Boot: 7, TTL: 3000}); code != wire.CodeBusy {
			t.Errorf("an Open whose key found no room: %v", code)
		}
		if n := h.refused.Counts()[refused.Session] - refusals; n != 0 {
			t.Errorf("%d refusals were counted", n)
		}
		h.show(p, late)
		h.must(p, machine.Open{Session: late.ID(), Client: "t", Node: "n2", Boot: 7, TTL: 3000})
	})
}
