//go:build linux

package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// The resources count exactly the updates that a stale write forgets, and the fenced copy
// takes no stale write.
func TestResourcesCountLostUpdates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s, err := newStore(path, history.NewWriter(func() int64 { return 1 }, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := dialStore(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write := func(copied string, token uint64, base, value string) error {
		_, err := c.ask(request{Do: "write", Resource: "k", Process: "p", Token: token, Copy: copied, Base: base, Value: value})
		return err
	}
	for _, w := range []struct {
		token        uint64
		base, value  string
		lost, fenced int
		refused      bool
	}{
		{1, "", "a", 0, 0, false},
		{1, "a", "b", 0, 0, false},
		{2, "b", "c", 0, 0, false},
		{1, "a", "x", 2, 0, true},  // forgets b and c
		{2, "x", "y", 2, 0, false}, // of the plain copy; the fenced one has no x
		{2, "c", "z", 4, 0, false}, // forgets x and y, and has b and c again
	} {
		if w.value == "y" {
			if err := write("plain", w.token, w.base, w.value); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := write("plain", w.token, w.base, w.value); err != nil {
			t.Error(err)
		}
		if err := write("", w.token, w.base, w.value); (err != nil) != w.refused || err != nil && !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", w.value, err)
		}
		plain, _ := s.sum("plain")
		fenced, _ := s.sum("")
		if plain.Lost != w.lost || fenced.Lost != w.fenced {
			t.Errorf("after %s: %d updates lost without a fence, %d with one", w.value, plain.Lost, fenced.Lost)
		}
	}
	fenced, _ := s.sum("")
	if fenced != (counts{Writes: 4, Refused: 1}) {
		t.Errorf("fenced: %+v", fenced)
	}
	if a, err := c.ask(request{Do: "read", Resource: "k", Token: 2}); err != nil || a.State != "z" || a.Size != 4 {
		t.Errorf("read %+v, %v", a, err)
	}
	if _, err := c.ask(request{Do: "claim", Resource: "k", Token: 3, Process: "q"}); err != nil || s.user("k") != "q" {
		t.Errorf("claimed by %s: %v", s.user("k"), err)
	}
	if write("", 2, "z", "late") == nil {
		t.Error("a write below a claim was taken")
	}
}

// A seed draws the same town and the same schedule, which fits the town.
func TestASeedRepeatsItsSchedule(t *testing.T) {
	kinds := make(map[string]bool)
	for seed := range uint64(300) {
		k, steps := draw(seed, time.Minute)
		k2, again := draw(seed, time.Minute)
		if k != k2 || !reflect.DeepEqual(steps, again) {
			t.Fatalf("seed %d draws two schedules", seed)
		}
		wiped := 0
		for _, s := range steps {
			kinds[s.Fault] = true
			f := faults[s.Fault]
			if !f.fits(k) || s.For <= 0 || s.At >= time.Minute {
				t.Errorf("seed %d: %v does not fit %v", seed, s, k)
			}
			if f.vote {
				wiped++
			}
		}
		if wiped > 1 {
			t.Errorf("seed %d loses %d disks", seed, wiped)
		}
	}
	for name := range faults {
		if !kinds[name] {
			t.Errorf("no schedule has the fault %q", name)
		}
	}
}

// Only an answer that says so counts as "nothing was changed".
func TestOutcomesAreSorted(t *testing.T) {
	for _, c := range []struct {
		kind    history.Kind
		err     error
		outcome history.Outcome
		class   string
	}{
		{history.Try, nil, history.Done, ""},
		{history.Try, &locks.HeldError{}, history.Refused, history.ErrHeld},
		{history.Acquire, fmt.Errorf("wrapped: %w", locks.ErrDeadlock), history.Refused, history.ErrDeadlock},
		{history.Acquire, context.DeadlineExceeded, history.Unknown, history.ErrContext},
		{history.Acquire, &locks.LostError{}, history.Unknown, history.ErrLost},
		{history.Release, &locks.LostError{}, history.Refused, history.ErrLost},
		{history.Release, locks.ErrSessionLost, history.Unknown, history.ErrLost},
		{history.Update, errors.Join(context.Canceled, locks.ErrUncertain), history.Unknown, history.ErrUncertain},
		{history.Acquire, io.EOF, history.Unknown, history.ErrOther},
	} {
		if o, class := outcome(c.kind, c.err); o != c.outcome || class != c.class {
			t.Errorf("%s with %v: %s, %s", c.kind, c.err, o, class)
		}
	}
}

// Overlaps are told apart by the standstills, and have their lengths.
func TestOverlapsOfStoppedHoldersAreListed(t *testing.T) {
	const ms = int64(time.Millisecond)
	hold := func(process string, token uint64, from, done int64, how string) history.Hold {
		return history.Hold{ID: fmt.Sprint(token), Op: fmt.Sprint("op", token), Process: process, Keys: []string{"k"}, Token: token, From: from * ms, Done: done * ms, How: how}
	}
	h := history.History{
		Marks: []history.Mark{
			{At: 10 * ms, Kind: history.Freeze, Who: "a"}, {At: 15 * ms, Kind: starved, Who: "a"},
			{At: 20 * ms, Kind: fed, Who: "a"}, {At: 300 * ms, Kind: history.Thaw, Who: "a"},
			{At: 2000 * ms, Kind: stalled, Who: "c", Text: fmt.Sprint(400 * ms)},
		},
		Holds: []history.Hold{
			hold("a", 1, 1, 304, history.Lost),      // stopped from 10 to 300
			hold("b", 2, 100, 1000, history.Lost),   // runs, and ends 10 ms late
			hold("c", 3, 990, 2001, history.Lost),   // stalled
			hold("d", 4, 1900, 2002, "released"),    // does not count
			hold("e", 5, 2001, 2100, history.Lost),  // the last one
			hold("f", 6, 2200, 2300, history.Lost),  // no overlap
			hold("g", 7, 2400, 0, history.Released), // nothing seen
		},
	}
	still := standstills(&h)
	if want := []window{{10 * ms, 300 * ms}}; !reflect.DeepEqual(still["a"], want) {
		t.Errorf("a stood still in %v", still["a"])
	}
	if want := []window{{1500 * ms, 2000 * ms}}; !reflect.DeepEqual(still["c"], want) {
		t.Errorf("c stood still in %v", still["c"])
	}
	stopped, running := listOverlaps(&h, still)
	if stopped.N != 2 || stopped.Longest != 204 || stopped.Told != 4 || len(stopped.lines) != 2 {
		t.Errorf("stopped: %+v", stopped)
	}
	if running.N != 1 || running.Longest != 10 || running.Told != 10 {
		t.Errorf("running: %+v", running)
	}
}

// A process killed in the middle of an Update leaves the value that it may have replaced: a
// judge finds no update lost, whether the open call took effect or not.
func TestAnOpenUpdateHasTheOldValue(t *testing.T) {
	base := t.TempDir()
	f, err := os.Create(filepath.Join(base, "m0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var at int64
	k := &caller{p: &program{rec: history.NewWriter(func() int64 { at++; return at }, f)}, c: &client{name: "c"}}
	update := func(old, value string) *history.Op {
		op := &history.Op{Kind: history.Update, Keys: []string{"c0"}, Value: value}
		k.begin(op)
		k.change(op)([]byte(old))
		return op
	}
	k.end(update("", "one"), nil)
	update("one", "two") // killed
	k.end(update("two", "three"), nil)
	h, err := readAll(base)
	if err != nil || len(h.Ops) != 3 {
		t.Fatalf("%d ops, %v", len(h.Ops), err)
	}
	if found := history.Check(h); len(found) > 0 {
		t.Error(found)
	}
}

// Voters that apply different entries at one index are found.
func TestLogsOfVotersAreCompared(t *testing.T) {
	mark := func(who, text string) history.Mark { return history.Mark{Kind: applied, Who: who, Text: text} }
	h := history.History{Marks: []history.Mark{mark("a", "16 aa"), mark("b", "16 aa"), mark("a", "32 bb"), mark("b", "32 cc"), mark("c", "160 dd")}}
	var r result
	if broken := compareLogs(&h, &r); len(broken) != 1 || r.Entries != 1 {
		t.Errorf("%d entries compared, %v", r.Entries, broken)
	}
}

// The records of a killed process are read and judged: two holders, both sure of the lock
// at a time, are found.
func TestRecordingsAreReadAndJudged(t *testing.T) {
	base := t.TempDir()
	for i, process := range []string{"m0/1", "m1/2"} {
		f, err := os.Create(filepath.Join(base, fmt.Sprintf("m%d.jsonl", i)))
		if err != nil {
			t.Fatal(err)
		}
		at := int64(100 * (i + 1))
		rec := history.NewWriter(func() int64 { at += 10; return at }, f)
		k := &caller{p: &program{rec: rec, s: settings{Process: process}}, c: &client{name: process + "/0"}, name: process}
		op := &history.Op{Kind: history.Acquire, Keys: []string{"k"}, Token: uint64(7 + i)}
		_ = k.call(op, func() error { return nil })
		g := k.granted(op, held{uint64(7 + i)})
		for range 20 * (2 - i) {
			g.valid()
		}
		if _, err := f.WriteString(`{"op":{"id":"cut sho`); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	h, err := readAll(base)
	if err != nil || len(h.Ops) != 2 || len(h.Holds) != 2 {
		t.Fatalf("%d ops, %d holds, %v", len(h.Ops), len(h.Holds), err)
	}
	var r result
	if found := judge(h, &r); len(found) == 0 || found[0].Check != "exclusion" && found[len(found)-1].Check != "exclusion" {
		t.Errorf("found %v", found)
	}
	if r.Grants != 2 || r.Ops != 2 {
		t.Errorf("%+v", r)
	}
}

// held is a lock without an end.
type held struct{ token uint64 }

func (h held) Token() fence.Token            { return fence.Token(h.token) }
func (h held) Err() error                    { return nil }
func (h held) Context() context.Context      { return context.Background() }
func (h held) Release(context.Context) error { return nil }

// The record says that a request waited once the client has told its grant, before or after the
// call's return, and only of a request that did not begin anew.
func TestOnlyGrantedRequestsAreKnownToHaveWaited(t *testing.T) {
	type ctxs struct{ call, other context.Context }
	for _, c := range []struct {
		name   string
		tell   func(t *locks.Trace, x ctxs, returns func())
		waited bool
		again  bool
	}{
		{"told before the return", func(t *locks.Trace, x ctxs, returns func()) {
			t.Queued(x.call, locks.LockEvent{})
			t.Acquired(x.call, locks.LockEvent{})
			returns()
		}, true, false},
		{"told after the return", func(t *locks.Trace, x ctxs, returns func()) {
			t.Queued(x.call, locks.LockEvent{})
			returns()
			t.Acquired(x.call, locks.LockEvent{})
		}, true, false},
		{"not told", func(t *locks.Trace, x ctxs, returns func()) {
			t.Queued(x.call, locks.LockEvent{})
			returns()
		}, false, false},
		{"begun anew", func(t *locks.Trace, x ctxs, returns func()) {
			t.Queued(x.call, locks.LockEvent{})
			t.Retrying(x.call, locks.LockEvent{})
			t.Acquired(x.call, locks.LockEvent{})
			returns()
		}, false, true},
		{"somebody else's", func(t *locks.Trace, x ctxs, returns func()) {
			t.Queued(x.other, locks.LockEvent{})
			t.Acquired(x.other, locks.LockEvent{})
			returns()
		}, false, false},
	} {
		var at int64
		var out bytes.Buffer
		p := &program{rec: history.NewWriter(func() int64 { at++; return at }, &out)}
		k := &caller{p: p, c: &client{name: "c"}}
		op := &history.Op{Kind: history.Acquire, Keys: []string{"k"}}
		k.begin(op)
		trace := p.trace("c")
		call, _ := trace.Acquiring(k.ctx(t.Context()), locks.LockEvent{})
		if mine, _ := trace.Acquiring(t.Context(), locks.LockEvent{}); mine != nil {
			t.Error("a call of nobody has a record")
		}
		c.tell(trace, ctxs{call, t.Context()}, func() { k.end(op, nil) })
		h, err := history.Read(&out)
		if err != nil || len(h.Ops) != 1 {
			t.Fatalf("%s: %d ops, %v", c.name, len(h.Ops), err)
		}
		if o := h.Ops[0]; (o.Queued != 0) != c.waited || o.Retried != c.again || o.Outcome != history.Done {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// A run whose faults of disks have hit no write is none of sick disks. A full disk may have room
// for all writes of a run.
func TestFaultsOfDisksMustHit(t *testing.T) {
	for _, c := range []struct {
		made, idle string
		fails      bool
	}{
		{"", "", false}, {"sync slow", "", false}, {"", "sync slow", true}, {"disk fails", "sync slow", false}, {"disk full", "sync fails", true},
		{"kill", "disk full", false},
	} {
		r := &result{Faults: map[string]int{c.made: 1}, Idle: map[string]int{c.idle: 1}}
		if err := r.idleDisks(); (err != nil) != c.fails {
			t.Errorf("made %q, idle %q: %v", c.made, c.idle, err)
		}
	}
}

// A process that the runtime has ended is a violation, unless memory was taken from it.
func TestCrashesAreFound(t *testing.T) {
	base := t.TempDir()
	for name, text := range map[string]string{
		"m0.log": "level=INFO msg=started\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\n",
		"m1.log": "fatal error: runtime: out of memory\nfatal error: runtime: cannot allocate memory\n",
		"m2.log": "level=WARN msg=\"panic: no\"\nfatal error: all goroutines are asleep - deadlock!\n",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := crashes(base)
	if err != nil || len(found) != 2 || !strings.Contains(found[0], "m0.log: panic") || !strings.Contains(found[1], "m2.log: fatal") {
		t.Errorf("%v, %v", found, err)
	}
}
