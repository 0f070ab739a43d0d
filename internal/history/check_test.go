package history

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestOverlapsOfHolds(t *testing.T) {
	judge(t, []verdict{
		{"the earlier token ended before", "", tell().get("a", "k", 1, 2, 5).held("a", 6, Lost).get("b", "k", 3, 6, 6).held("b", 9, Held)},
		{"the earlier token lived on", "exclusion", tell().get("a", "k", 1, 2, 5).held("a", 7, Lost).get("b", "k", 3, 6, 6).held("b", 9, Held)},
		// The process of a stood still: its call returned a lock that was lost long before.
		{"returned late", "", tell().get("b", "k", 3, 6, 6).held("b", 9, Held).get("a", "k", 1, 8, 5).held("a", 0, Lost)},
	})
}

func TestTokensAreChecked(t *testing.T) {
	grant := func(index uint64, key string, token, last uint64) Fact {
		return Fact{Index: index, Kind: Granted, Keys: []string{key}, Token: token, Last: last}
	}
	log := func(facts ...Fact) *story { return &story{History{Facts: facts}} }
	judge(t, []verdict{
		{"rise over keys", "", tell().get("a", "k", 1, 2, 5).get("b", "j", 3, 4, 6)},
		{"fall over keys", "tokens", tell().get("a", "k", 1, 2, 5).get("b", "j", 3, 4, 4)},
		{"fall over keys, beside each other", "", tell().get("a", "k", 1, 4, 5).get("b", "j", 3, 4, 4)},
		{"fall over keys, sticky", "", tell().get("a", "k", 1, 2, 5).get("b", "j", 3, 4, 4, sticky)},
		{"fall in a key, sticky", "tokens", tell().get("a", "k", 1, 2, 5, sticky).free("a", 2, 3).get("b", "k", 3, 4, 4, sticky)},
		{"twice", "tokens", tell().get("a", "k", 1, 4, 5).get("b", "j", 2, 4, 5)},
		{"rise in the log", "", log(grant(1, "k", 5, 9), grant(2, "k", 10, 0), grant(3, "j", 11, 0))},
		{"fall in the log", "tokens", log(grant(1, "k", 5, 0), grant(2, "k", 4, 0))},
		{"into a block", "tokens", log(grant(1, "k", 5, 9), grant(2, "k", 8, 0))},
	})
}

func TestOrderIsChecked(t *testing.T) {
	passes := func(n, priorities int) *story {
		s := tell().get("a", "k", 1, 100, 1000, queued(2))
		for i := range n {
			at := int64(3 + 2*i)
			s.get(fmt.Sprint("b", i), "k", at, at+1, uint64(10+i), priority(priorities)).free(fmt.Sprint("b", i), at+1, at+1)
		}
		return s
	}
	judge(t, []verdict{
		{"in order", "", tell().get("a", "k", 1, 5, 5, queued(2)).free("a", 6, 7).get("b", "k", 3, 8, 6)},
		{"passed", "order", tell().get("a", "k", 1, 9, 6, queued(2)).get("b", "k", 3, 5, 5).free("b", 6, 7)},
		{"passed before the queue", "", tell().get("a", "k", 1, 9, 6, queued(4)).get("b", "k", 3, 5, 5).free("b", 6, 7)},
		{"handed over", "", tell().get("c", "k", 1, 1, 4).get("a", "k", 1, 9, 6, queued(2)).get("b", "k", 3, 5, 5).of(HandOver, "c", 4, 5).free("b", 6, 7)},
		{"passed by priority", "", passes(16, 1)},
		{"passed by priority too often", "order", passes(17, 1)},
	})
}

func TestSessionsOnceFenceAndShardsAreChecked(t *testing.T) {
	log := func(facts ...Fact) *story { return &story{History{Facts: facts}} }
	run := func(s *story, id, key string, from, to int64, result string) *story {
		s.Runs = append(s.Runs, Run{ID: id, Kind: RunOnce, Key: key, Process: "p", Client: "c" + id, From: from, To: to, Result: result})
		return s
	}
	shard := func(limit int64, runs ...Run) *story {
		s := tell().mark(10, Joins, "c")
		s.Limits.Settle = limit
		for i, r := range runs {
			r.ID, r.Kind, r.Key, r.Call = fmt.Sprint(i), RunShard, "g/1", "call"
			s.Runs = append(s.Runs, r)
		}
		return s
	}
	writes := func(tokens ...uint64) *story {
		s := tell()
		for i, tok := range tokens {
			s.Writes = append(s.Writes, Write{Resource: "r", N: int64(i), Token: tok % 100, OK: tok < 100})
		}
		return s
	}
	fact := func(index uint64, kind string) Fact {
		return Fact{Index: index, Kind: kind, Session: "s", Keys: []string{"k"}, Token: index}
	}
	judge(t, []verdict{
		{"a grant, then the end", "", log(fact(1, Opened), fact(2, Granted), fact(3, Ending))},
		{"the end, then a grant", "sessions", log(fact(1, Opened), fact(2, Ending), fact(3, Granted))},
		{"once", "", run(tell(), "r", "o", 2, 3, "v").call(Once, "a", "o", 1, 4, 0, ran("v")).call(Once, "b", "o", 5, 6, 0, told1("v"))},
		{"twice", "once", run(run(tell(), "r", "o", 2, 3, "v"), "q", "o", 5, 6, "v").call(Once, "a", "o", 1, 4, 0, ran("v"))},
		{"twice, across a succession", "", run(run(tell(), "r", "o", 2, 3, "v"), "q", "o", 5, 6, "w").mark(4, Succeeded, "")},
		{"twice, before a succession", "once", run(run(tell(), "r", "o", 2, 3, "v"), "q", "o", 5, 6, "v").mark(9, Succeeded, "")},
		{"another result", "once", run(tell(), "r", "o", 2, 3, "v").call(Once, "b", "o", 5, 6, 0, told1("w"))},
		{"a result of no run", "once", tell().call(Once, "b", "o", 5, 6, 0, told1("w"))},
		{"a result after none", "once", run(tell(), "r", "o", 2, 3, "v").call(Once, "a", "o", 1, 4, 0, err(ErrUnfinished)).call(Once, "b", "o", 5, 6, 0, told1("v"))},
		{"a guard", "", writes(5, 5, 7, 106, 7)},
		{"a guard that takes an old token", "fence", writes(5, 7, 6)},
		{"a guard that refuses the newest", "fence", writes(5, 107)},
		{"a shard moves after a caller came", "", shard(5, Run{From: 11, To: 12}, Run{From: 13})},
		{"a shard runs twice", "shards", shard(5, Run{From: 11, To: 14}, Run{From: 13})},
		{"a shard moves without a cause", "shards", shard(5, Run{From: 11, To: 14}, Run{From: 17})},
		{"a calm is no cause", "shards", shard(5, Run{From: 11, To: 14}, Run{From: 17}).mark(15, Calm, "")},
	})
}

func TestLossAndLivenessAreChecked(t *testing.T) {
	lost := func(done int64) *story {
		s := tell().get("a", "k", 1, 2, 5).held("a", 3, Lost, func(h *Hold) { h.Done = done }).get("b", "k", 4, 10, 6).held("b", 0, Held).mark(100, "end", "")
		s.Limits.Told = 3
		return s
	}
	stood := func(valid, freeze, thaw int64) *story {
		s := tell().get("a", "k", 1, 2, 5).held("a", valid, Lost).mark(freeze, Freeze, "pa").mark(thaw, Thaw, "pa")
		s.Limits.Trust = 10
		return s
	}
	live := func(ret int64, call int64) *story {
		s := tell().mark(50, Heal, "").get("a", "k", call, ret, 5, queued(1)).mark(1000, "end", "")
		s.Limits.Live = 20
		return s
	}
	calm := func(runs ...Run) *story {
		s := tell().mark(50, Heal, "").mark(100, Calm, "").mark(200, Kill, "p").mark(90, Kill, "q")
		s.Limits.Keys, s.Limits.Works = []string{"k"}, []string{"w"}
		for i, r := range runs {
			r.ID, r.Kind, r.Key = fmt.Sprint(i), RunLead, "w"
			s.Runs = append(s.Runs, r)
		}
		return s
	}
	owner := Run{From: 60, To: 70}
	judge(t, []verdict{
		{"granted after the faults", "", calm(owner).get("a", "k+l", 51, 60, 5)},
		{"granted to a call from before", "liveness", calm(owner).get("a", "k", 49, 60, 5)},
		{"granted to nobody", "liveness", calm(owner).get("a", "k", 51, 60, 0)},
		{"owned all the time", "", calm(Run{From: 40, To: 100, Process: "p"}).get("a", "k", 51, 60, 5)},
		{"owned to the end", "", calm(Run{From: 40, Process: "p"}).get("a", "k", 51, 60, 5)},
		{"owned at first", "liveness", calm(Run{From: 40, To: 99, Process: "p"}).get("a", "k", 51, 60, 5)},
		{"owned by a process that was killed", "liveness", calm(Run{From: 40, Process: "q"}).get("a", "k", 51, 60, 5)},
		{"owned by nobody", "liveness", calm().get("a", "k", 51, 60, 5)},
		{"no calm", "", calm().mark(150, Heal, "")},
		{"told in time", "", lost(12)},
		{"told before", "", lost(9)},
		{"told late", "loss", lost(14)},
		{"never told", "loss", lost(0)},
		{"told late after a stop", "", lost(22).mark(5, Freeze, "pa").mark(20, Thaw, "pa")},
		{"told too late after a stop", "loss", lost(25).mark(5, Freeze, "pa").mark(20, Thaw, "pa")},
		{"killed before", "", lost(0).mark(5, Kill, "pa")},
		{"held after a short stop", "", stood(16, 5, 15)},
		{"held before a long stop", "", stood(4, 5, 16)},
		{"held after a long stop", "pause", stood(17, 5, 16)},
		{"granted after a long stop", "", tell().mark(5, Freeze, "pa").mark(30, Thaw, "pa").get("a", "k", 1, 31, 5).held("a", 32, Lost)},
		{"answered in time", "", live(69, 10)},
		{"answered late", "liveness", live(71, 10)},
		{"not answered", "liveness", live(0, 10)},
		{"called later, and in time", "", live(119, 100)},
		{"called later, and late", "liveness", live(121, 100)},
		{"killed", "", live(0, 10).mark(40, Kill, "pa")},
		{"nothing is left", "", &story{History{Left: []Remains{{What: "grants"}, {What: "goroutines", N: 3, Most: 5}}}}},
		{"a grant is left", "clean", &story{History{Left: []Remains{{What: "grants", N: 1}}}}},
	})
}

func TestARecordingIsReadBack(t *testing.T) {
	var stamp int64
	now := func() int64 { stamp++; return stamp }
	var first, second bytes.Buffer
	a, b, kept := NewWriter(now, &first), NewWriter(now, &second), NewRecorder(now)
	for _, r := range []*Recorder{a, kept} {
		r.Limits(Limits{Live: 5})
		r.Op(Op{ID: "a", Process: "p", Kind: Try, Keys: []string{"k"}, Call: 1})
		r.Op(Op{ID: "a", Process: "p", Kind: Try, Keys: []string{"k"}, Call: 1, Return: 2, Outcome: Done, Token: 7})
		r.Hold(Hold{ID: "h", Op: "a", Process: "p", Keys: []string{"k"}, Token: 7, From: 2})
		r.Hold(Hold{ID: "h", Op: "a", Process: "p", Keys: []string{"k"}, Token: 7, From: 2, Valid: 9, How: Released})
	}
	for _, r := range []*Recorder{b, kept} {
		r.Run(Run{ID: "r", Kind: RunOnce, Process: "q", From: 3})
		r.End("q")
		r.Run(Run{ID: "r", Kind: RunOnce, Process: "q", From: 3, To: 4}) // seen by nobody
		r.Show(Show{Watch: "w", Process: "p", Kind: ShowHolder, Key: "k", Token: 7, At: 4})
		r.Write(Write{Resource: "x", Token: 7, OK: true})
		r.Fact(Fact{Index: 1, Kind: Granted})
		r.Left(Remains{What: "grants"})
	}
	b.w.(*bytes.Buffer).WriteString(`{"op":{"id":"cut o`) // killed in the middle of a line
	got, err := Read(&first, &second)
	if err != nil {
		t.Fatal(err)
	}
	want := kept.History()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read   %+v\nwanted %+v", got, want)
	}
	if got.Ops[0].Token != 7 || got.Holds[0].Valid != 9 || got.Runs[0].To != 0 {
		t.Errorf("read %+v", got)
	}
	var again bytes.Buffer
	if _, err := got.WriteTo(&again); err != nil {
		t.Fatal(err)
	}
	if back, err := Read(&again); err != nil || !reflect.DeepEqual(back, got) {
		t.Errorf("read back %+v, %v", back, err)
	}
	if _, err := Read(strings.NewReader("nonsense\n")); err == nil {
		t.Error("nonsense is a history")
	}
}

func TestARecorderTellsAFailedWriter(t *testing.T) {
	f, err := os.Open(os.DevNull) // not for writing
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := NewWriter(func() int64 { return 1 }, f)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { r.Mark(Fault, "", ""); _ = r.NewID("x") })
	}
	wg.Wait()
	if r.Err() == nil {
		t.Error("no error")
	}
}

func TestPrintShowsTheStretchAroundAViolation(t *testing.T) {
	s := tell().get("a", "k", 1, 2, 5).held("a", 7, Lost).get("b", "k", 3, 6, 6).held("b", 9, Held).
		get("c", "elsewhere", 3, 6, 7).mark(4, Freeze, "pa").get("d", "k", 1e9, 1e9, 8)
	found := Check(s.History)
	if len(found) == 0 {
		t.Fatal("nothing found")
	}
	var b strings.Builder
	if err := s.Print(&b, found[0], 100, 100); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pa a calls acquire", "freeze pa", "told for the last time that token 5", "b returns"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, not := range []string{"elsewhere", "pd"} {
		if strings.Contains(b.String(), not) {
			t.Errorf("%q in\n%s", not, b.String())
		}
	}
}
