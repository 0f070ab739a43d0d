package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

func apply(t testing.TB, s *State, c Command, want Code) (Outcome, []Event) {
	t.Helper()
	out, events := s.Apply(c)
	if out.Code != want {
		t.Fatalf("%#v: %+v, want code %d", c, out, want)
	}
	return out, events
}

// TestEventsOfAnEndStandInOrder: the losses, by token, and the grants that follow
// from them, in the same order; then the end; then the changed keys, sorted, each once.
func TestEventsOfAnEndStandInOrder(t *testing.T) {
	for range 20 { // maps differ in their order each time
		s := founded()
		a, b := session16("a"), session16("b")
		apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
		apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
		apply(t, s, Acquire{Session: b, Seq: 10, Key: "other"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 9, Key: "other"}, Queued)
		apply(t, s, Acquire{Session: a, Seq: 1, Key: "zebra"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 2, Key: "apple"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 3, Key: "mango"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 4, Key: "zebra"}, Queued)
		apply(t, s, Acquire{Session: b, Seq: 5, Key: "zebra"}, Queued)
		apply(t, s, Acquire{Session: b, Seq: 6, Key: "mango"}, Queued)
		_, got := apply(t, s, Expire{Session: a, Term: 1}, OK)
		want := []Event{
			{Kind: EventLost, Session: a, Seq: 1, Key: "zebra", Token: 2, Reason: Expired},
			{Kind: EventLost, Session: a, Seq: 2, Key: "apple", Token: 3, Reason: Expired},
			{Kind: EventLost, Session: a, Seq: 3, Key: "mango", Token: 4, Reason: Expired},
			{Kind: EventGranted, Session: b, Seq: 5, Key: "zebra", Token: 5, Unclean: true},
			{Kind: EventGranted, Session: b, Seq: 6, Key: "mango", Token: 6, Unclean: true},
			{Kind: EventEnded, Session: a, Reason: Expired},
			{Kind: EventChanged, Key: "apple"},
			{Kind: EventChanged, Key: "mango"},
			{Kind: EventChanged, Key: "other"},
			{Kind: EventChanged, Key: "zebra"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
	}
}

// TestLiftServesKeysInOrder: tokens follow the keys, wherever these are kept.
func TestLiftServesKeysInOrder(t *testing.T) {
	s := New()
	a := session16("a")
	apply(t, s, Found{Cluster: ClusterID{1}, Floor: 1, TTL: 1000}, OK)
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	for i := range uint64(1000) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: crowdKey(int(i * 7 % 1000))}, Queued)
	}
	_, events := apply(t, s, Lift{}, OK)
	for i := range 1000 {
		if e := events[i]; e.Kind != EventGranted || e.Key != crowdKey(i) || e.Token != Token(i+1) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}

// TestChangedIsToldWhenHolderOrQueueChange, and Version moves with it; else not.
func TestChangedIsToldWhenHolderOrQueueChange(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	for _, step := range []struct {
		c       Command
		changed bool
	}{
		{Open{Session: a, Client: "a", TTL: 1000}, false},
		{Open{Session: b, Client: "b", TTL: 1000}, false},
		{Acquire{Session: a, Seq: 1, Key: "k"}, true},
		{Acquire{Session: a, Seq: 1, Key: "k"}, false},
		{Acquire{Session: b, Seq: 1, Key: "k"}, true},
		{Acquire{Session: b, Seq: 1, Key: "k"}, false},
		{Acquire{Session: b, Seq: 2, Key: "k", Try: true, Seen: []uint64{1}}, false},
		{Withdraw{Session: a, Seq: 99, Seen: []uint64{1}}, false},
		{Release{Session: b, Token: 1}, false},
		{Release{Session: a, Token: 1}, true},
		{Release{Session: a, Token: 1}, false},
		{Withdraw{Session: b, Seq: 1}, true},
		{Ask{Session: a, Key: "k"}, false},
	} {
		before := s.Version("k")
		_, events := s.Apply(step.c)
		told := slices.Contains(events, Event{Kind: EventChanged, Key: "k"})
		if moved := s.Version("k") != before; told != step.changed || moved != step.changed {
			t.Errorf("%#v: told %t, version moved %t, want %t", step.c, told, moved, step.changed)
		}
		if v := s.Version("k"); v != 0 && moved(events) && v != s.Commands() {
			t.Errorf("%#v: version %d after command %d", step.c, v, s.Commands())
		}
	}
}

func moved(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventChanged })
}

// TestCallersMemoryIsNotKept: what a caller does to its slices afterwards
// changes nothing, nor what it does to those it got.
func TestCallersMemoryIsNotKept(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000, Meta: "meta"}, OK)
	apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Meta: "meta"}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Meta: "meta"}}, Queued)
	keys, under, value := []string{"x", "y"}, []Token{1}, []byte("value")
	set, _ := apply(t, s, Acquire{Session: a, Seq: 2, Keys: keys}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 2, Keys: keys, Under: under}, Queued)
	one, _ := apply(t, s, Acquire{Session: a, Seq: 3, Key: "v"}, Granted)
	apply(t, s, SetValue{Session: a, Token: one.Token, Rev: 1, Value: value}, OK)
	before := s.Digest()
	keys[0], under[0] = "z", set.Token
	copy(value, "wwww")
	s.Status("k", 1).Holders[0].Meta = "yyyy"
	s.Status("k", 1).Waiters[0].Seq = 7
	if s.Digest() != before {
		t.Error("the table changed without a command")
	}
}

func TestQueueHoldsMaxWaiters(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	for i := range uint64(MaxWaiters) {
		out, _ := apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", MaxWaiters: 1 << 31}, Queued)
		if out.Behind != uint32(i+1) {
			t.Fatalf("behind %d, want %d", out.Behind, i+1)
		}
	}
	out, _ := apply(t, s, Acquire{Session: a, Seq: 20_000, Key: "k", MaxWaiters: 1 << 31}, TooManyWaiters)
	if out.Limit != MaxWaiters {
		t.Errorf("limit %d", out.Limit)
	}
	apply(t, s, Withdraw{Session: a, Seq: 5000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 20_001, Key: "k"}, Queued)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	_, events := apply(t, s, Close{Session: a}, OK)
	if len(events) != 3 || s.Counts() != (Counts{Keys: 1}) {
		t.Errorf("%d events, left %+v", len(events), s.Counts())
	}
}

// TestUnseenOutcomesAreBounded: beyond MaxUnseen a request is refused, and so
// is its late copy when there is room again. The count is put there by hand: a
// million refusals would take seconds, and minutes under the race detector.
func TestUnseenOutcomesAreBounded(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	o, _ := s.sessions.get(a)
	before := o.index.unseen
	o.index.unseen = MaxUnseen - 1
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "k", Try: true}, Held)
	if out, _ := apply(t, s, Acquire{Session: a, Seq: 3, Key: "free"}, TooManyUnseen); out.Limit != MaxUnseen {
		t.Errorf("%+v", out)
	}
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "free"}, Withdrawn)
	apply(t, s, Acquire{Session: a, Seq: 4, Key: "free", Seen: []uint64{2}}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "k"}, Withdrawn)
	o.index.unseen -= MaxUnseen - 1 - before
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestGapsAreBounded: a client that leaves a gap at every other seq is refused
// once it has MaxGaps of them, and goes on when it closes some.
func TestGapsAreBounded(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	seq := uint64(0)
	for n := 0; n <= MaxGaps; {
		var seen []uint64
		for range min(MaxSeen, MaxGaps+1-n) {
			seq += 2
			seen = append(seen, seq)
			n++
		}
		apply(t, s, Withdraw{Session: a, Seq: seq, Seen: seen}, OK)
	}
	if out, _ := apply(t, s, Acquire{Session: a, Seq: seq + 2, Key: "k"}, BadCommand); out.Field != "Seq" || out.Limit != MaxGaps {
		t.Errorf("%+v", out)
	}
	if out, _ := apply(t, s, Withdraw{Session: a, Seq: seq + 2}, BadCommand); out.Field != "Seq" {
		t.Errorf("%+v", out)
	}
	if out, _ := apply(t, s, Withdraw{Session: a, Seq: 1, Seen: []uint64{seq + 2}}, BadCommand); out.Field != "Seen" {
		t.Errorf("%+v", out)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: seq + 2, Key: "l"}, Granted)
	r, err := restored(s)
	if err != nil || r.Digest() != s.Digest() {
		t.Errorf("restored: %v", err)
	}
}

func TestHashesNeverChange(t *testing.T) {
	if k, s, r := hashKey("invoices"), hashSession(session16("a")), hashRequest(requestID{session16("a"), 1 << 40}); k != 215 || s != 224 || r != 246 {
		t.Errorf("hashes %d, %d, %d: images of before would be refused", k, s, r)
	}
	n := make(map[uint8]int)
	for i := range 256 * 100 {
		n[hashKey(fmt.Sprintf("tenant/%d/invoices", i))]++
	}
	for shard, n := range n {
		if n < 50 || n > 200 {
			t.Errorf("shard %d has %d keys of 25,600", shard, n)
		}
	}
}

func TestQueriesStopWhenToldTo(t *testing.T) {
	s := rich(t)
	n := 0
	s.Sessions(func(SessionStatus) bool { n++; return false })
	if n != 1 {
		t.Errorf("called %d times", n)
	}
	if st, ok := s.Session(SessionID{9}); ok || s.Pending(SessionID{9}) != nil {
		t.Errorf("%+v", st)
	}
	if id, token := s.Owner("nothing"); id != (SessionID{}) || token != 0 {
		t.Errorf("%v %d", id, token)
	}
	if st := s.Status("invoices", -1); st.Queue == 0 || len(st.Waiters) != 0 {
		t.Errorf("%+v", st)
	}
}

// crowd is a table of n keys, each held, over a hundred sessions.
func crowd(n int) *State {
	s := founded()
	for i := range 100 {
		s.Apply(Open{Session: SessionID{1, byte(i)}, Client: "client", Node: "node", TTL: 1000})
	}
	for i := range n {
		s.Apply(Acquire{Session: SessionID{1, byte(i % 100)}, Seq: uint64(i/100 + 1), Key: crowdKey(i)})
	}
	return s
}

func crowdKey(i int) string { return fmt.Sprintf("tenant/%08d/of/a/service/invoices", i) }

func BenchmarkAcquireRelease(b *testing.B) {
	s := crowd(100_000)
	id := SessionID{1, 7}
	seq := uint64(1 << 20)
	var seen []uint64
	b.ReportAllocs()
	for b.Loop() {
		seq++
		out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: "a key that nobody else wants", Seen: seen})
		s.Apply(Release{Session: id, Token: out.Token})
	}
}

// BenchmarkHandoff is a release that grants to a waiter, and its next request.
func BenchmarkHandoff(b *testing.B) {
	s := crowd(0)
	x, y := SessionID{1, 1}, SessionID{1, 2}
	out, _ := s.Apply(Acquire{Session: x, Seq: 1, Key: "k"})
	s.Apply(Acquire{Session: y, Seq: 1, Key: "k"})
	token, seqs := out.Token, map[SessionID]uint64{x: 1, y: 1}
	b.ReportAllocs()
	for b.Loop() {
		seqs[x]++
		if out, _ := s.Apply(Release{Session: x, Token: token}); out.Code != OK {
			b.Fatal(out)
		}
		s.Apply(Acquire{Session: x, Seq: seqs[x], Key: "k"})
		x, y, token = y, x, token+1
	}
}

// BenchmarkSnapshotPause reports, of a million locks, how long Snapshot takes
// and the longest that one Apply took while an image was out.
func BenchmarkSnapshotPause(b *testing.B) {
	s := crowd(1_000_000)
	seq := uint64(1 << 20)
	var most, worst int64
	for b.Loop() {
		start := b.Elapsed()
		s.Snapshot()
		most = max(most, int64(b.Elapsed()-start))
		for i := range 2000 {
			seq++
			id := SessionID{1, byte(i % 100)}
			start := b.Elapsed()
			out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: crowdKey(2_000_000 + i)})
			worst = max(worst, int64(b.Elapsed()-start))
			s.Apply(Release{Session: id, Token: out.Token})
		}
	}
	b.ReportMetric(float64(most), "max-snapshot-ns")
	b.ReportMetric(float64(worst), "max-apply-ns")
}

func BenchmarkWriteRestore(b *testing.B) {
	s := crowd(1_000_000)
	for _, bench := range []string{"write", "restore"} {
		b.Run(bench, func(b *testing.B) {
			data := image(s)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if bench == "write" {
					data = image(s)
				} else if _, err := Restore(bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data))/1e6, "B/lock")
		})
	}
}

func BenchmarkCommand(b *testing.B) {
	c := Acquire{Session: SessionID{1}, Seq: 1 << 20, Key: crowdKey(1), Seen: []uint64{1<<20 - 1}}
	b.Run("append", func(b *testing.B) {
		var buf []byte
		var cmd Command = c
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendCommand(buf[:0], cmd)
		}
	})
	b.Run("decode", func(b *testing.B) {
		buf := EncodeCommand(c)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeCommand(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("entry of 1024", func(b *testing.B) {
		cmds := make([]Command, MaxCommands)
		for i := range cmds {
			c.Seq++
			binary.BigEndian.PutUint32(c.Session[4:], uint32(i))
			cmds[i] = c
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeEntry(EncodeCommands(cmds)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
