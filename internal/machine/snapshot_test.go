package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// richCommands1 are what made the image of version 1 in testdata/golden.
func richCommands1() []Command {
	a, b, c := session16("a"), session16("b"), session16("c")
	return []Command{
		Found{Cluster: ClusterID{0xc1}, Floor: 1 << 52, TTL: 10_000},
		LeaderStart{Term: 3},
		Open{Session: a, Client: "billing", Node: "n1", TTL: 5_000, Meta: []byte("m")},
		Open{Session: b, Client: "reports", Node: "n2", TTL: 10_000},
		Open{Session: c, Client: "idle", TTL: 300},
		Acquire{Session: a, Seq: 1, Key: "invoices", Meta: []byte("first")},
		Acquire{Session: b, Seq: 1, Key: "invoices", Meta: []byte("second")},
		Acquire{Session: a, Seq: 2, Key: "orders", Try: true},
		Lift{Term: 3},
		Acquire{Session: a, Seq: 7, Key: "orders"},
		Acquire{Session: b, Seq: 2, Key: "orders", Try: true},
		Acquire{Session: b, Seq: 3, Key: "orders", Seen: []uint64{40}},
		Acquire{Session: a, Seq: 8, Key: "invoices", MaxWaiters: 1},
		Acquire{Session: b, Seq: 4, Key: "päyments"},
		Release{Session: a, Token: 1, Seen: []uint64{7}},
		Silence{Session: c, Term: 3},
		Bound{Term: 3, TTL: 20_000},
	}
}

// rich returns a table with something of everything in it.
func rich(tb testing.TB) *State {
	tb.Helper()
	s := New()
	apply := func(c Command, want Code) Token {
		tb.Helper()
		out, _ := s.Apply(c)
		if out.Code != want {
			tb.Fatalf("%#v: %+v, want code %d", c, out, want)
		}
		return out.Token
	}
	for _, c := range richCommands1() {
		s.Apply(c)
	}
	apply(Raise{Term: 3, Format: 2}, OK)
	// What comes from forgetting thousands of keys.
	s.Clock(1_700_000_000_000)
	s.forgotten = 1<<52 - 1

	b, d, e, f := session16("b"), session16("d"), session16("e"), session16("f")
	apply(Open{Session: d, Client: "docs", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: e, Client: "editor", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: f, Client: "flaky", Node: "n4", TTL: 5_000}, OK)

	// An upgrade that waits, and one that was granted.
	shared := apply(Acquire{Session: d, Seq: 1, Key: "docs/a", Mode: Shared}, Granted)
	apply(Acquire{Session: e, Seq: 1, Key: "docs/a", Mode: Shared, Meta: []byte("reads")}, Granted)
	apply(Upgrade{Session: d, Seq: 2, Token: shared}, Queued)
	shared = apply(Acquire{Session: e, Seq: 2, Key: "docs/b", Mode: Shared}, Granted)
	apply(Upgrade{Session: e, Seq: 3, Token: shared}, Granted)

	// Permits: one that waits is passed by another.
	permitD := apply(Acquire{Session: d, Seq: 3, Key: "pool", Mode: Permit, Of: 2}, Granted)
	permitE := apply(Acquire{Session: e, Seq: 4, Key: "pool", Mode: Permit, Of: 2}, Granted)
	apply(Acquire{Session: b, Seq: 19, Key: "pool", Mode: Permit, Of: 3}, WrongCapacity)
	apply(Acquire{Session: b, Seq: 20, Key: "pool", Mode: Permit, Of: 2, Priority: -1}, Queued)
	apply(Acquire{Session: b, Seq: 21, Key: "pool", Mode: Permit, Of: 2, Priority: 5, Delay: 100}, Queued)

	// A tree, waited for under a permit, and the cycle that this would close.
	tree := apply(Acquire{Session: d, Seq: 4, Key: "area/north", Tree: true}, Granted)
	apply(Acquire{Session: e, Seq: 5, Key: "area/north/x", Under: []Token{permitE}}, Queued)
	apply(Acquire{Session: e, Seq: 9, Key: "area", Tree: true}, Queued)
	apply(Acquire{Session: d, Seq: 5, Key: "pool", Mode: Permit, Of: 2, Under: []Token{permitD, tree}}, Deadlock)

	// Requests for several keys.
	apply(Acquire{Session: d, Seq: 6, Keys: []string{"set/1", "set/2"}}, Granted)
	apply(Acquire{Session: e, Seq: 6, Keys: []string{"set/2", "set/3"}, Mode: Shared}, Queued)

	// Keys at rest: with a value, with one that may fade, with none.
	for i, c := range []SetValue{{Value: []byte("kept")}, {Value: []byte("fading"), Fade: true}, {}} {
		c.Session, c.Rev = d, 1
		c.Token = apply(Acquire{Session: d, Seq: 7 + uint64(i), Key: fmt.Sprint("rest ", i)}, Granted)
		apply(c, OK)
		apply(Release{Session: d, Token: c.Token}, OK)
	}

	// A delay that runs, a grant that was taken away, one that is asked for, and a
	// waiter refused when its turn came.
	apply(Acquire{Session: f, Seq: 1, Key: "slow", Delay: 5_000, Meta: []byte("left")}, Granted)
	apply(Expire{Session: f, Term: 3}, OK)
	apply(Acquire{Session: d, Seq: 10, Key: "slow"}, Queued)
	apply(Break{Session: b, Key: "broken", Token: apply(Acquire{Session: d, Seq: 11, Key: "broken"}, Granted)}, OK)
	apply(Ask{Session: d, Key: "orders"}, OK)
	late := apply(Acquire{Session: d, Seq: 12, Key: "late"}, Granted)
	apply(Acquire{Session: b, Seq: 22, Key: "late"}, Queued)
	apply(Acquire{Session: e, Seq: 7, Key: "late", Conditional: true, IfToken: late}, Queued)
	apply(Release{Session: d, Token: late}, OK)
	apply(Acquire{Session: e, Seq: 8, Key: "late", Conditional: true, IfToken: late + 1, Meta: []byte("if")}, Queued)

	value := apply(Acquire{Session: e, Seq: 30, Key: "value"}, Granted)
	apply(SetValue{Session: e, Token: value, Rev: 3, Value: []byte("v")}, OK)
	s.edit("value").holders[0].full = true // as after 64 MiB

	if err := s.Check(); err != nil {
		tb.Fatal(err)
	}
	if n := s.Counts(); n != (Counts{Keys: 19, Grants: 15, Waiters: 11, Sessions: 5, Answers: 7, Values: 2}) {
		tb.Fatalf("not as rich as it should be: %+v", n)
	}
	return s
}

func image(s *State) []byte {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestImageIsGolden(t *testing.T) {
	want := golden(t, "snapshot-v2.hex", image(rich(t)))
	s, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(image(s), want) {
		t.Error("what was restored has another image")
	}
	golden(t, "snapshot-empty-v2.hex", image(New()))
}

// TestImageOfVersion1 restores what richCommands1 made when there was nothing
// but exclusive holders.
func TestImageOfVersion1(t *testing.T) {
	s, err := Restore(bytes.NewReader(history(t, "snapshot-v1.hex")))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	a, b, c := session16("a"), session16("b"), session16("c")
	cluster, isFounded := s.Cluster()
	if cluster != (ClusterID{0xc1}) || !isFounded || !s.Lifted() || s.Term() != 3 || s.Bound() != 20_000 ||
		s.LastToken() != 1<<52+2 || s.Commands() != 17 {
		t.Errorf("header of %x %t %t, term %d, bound %d, last token %d, %d commands",
			cluster, isFounded, s.Lifted(), s.Term(), s.Bound(), s.LastToken(), s.Commands())
	}
	if n := s.Counts(); n != (Counts{Keys: 3, Grants: 3, Waiters: 2, Sessions: 3, Answers: 3}) {
		t.Errorf("%+v", n)
	}
	held := func(id SessionID, seq uint64, token Token, meta string) Grant {
		g := Grant{Session: id, Seq: seq, Token: token, Client: "billing", Node: "n1", Keys: 1, Meta: bytesOf(meta), SessionMeta: []byte("m")}
		if id == b {
			g.Client, g.Node, g.SessionMeta = "reports", "n2", nil
		}
		return g
	}
	waits := func(seq uint64, meta string) []Waiter {
		return []Waiter{{Session: b, Seq: seq, Client: "reports", Node: "n2", Keys: 1, Meta: bytesOf(meta)}}
	}
	for _, want := range []Status{
		{Key: "invoices", Holders: []Grant{held(a, 1, 1<<52, "first")}, Held: 1, Waiters: waits(1, "second"), Queue: 1, Last: 1 << 52, Version: 9},
		{Key: "orders", Holders: []Grant{held(a, 7, 1<<52+1, "")}, Held: 1, Waiters: waits(3, ""), Queue: 1, Last: 1<<52 + 1, Version: 12},
		{Key: "päyments", Holders: []Grant{held(b, 4, 1<<52+2, "")}, Held: 1, Last: 1<<52 + 2, Version: 14},
		{Key: "free"},
	} {
		if got := s.Status(want.Key, 10); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
	}
	for _, want := range []SessionStatus{
		{ID: a, Client: "billing", Node: "n1", TTL: 5_000, Grants: 2},
		{ID: b, Client: "reports", Node: "n2", TTL: 10_000, Grants: 1, Waits: 2},
		{ID: c, Client: "idle", TTL: 300, Silent: true},
	} {
		if got, ok := s.Session(want.ID); !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	want := []Event{{Kind: EventGranted, Session: a, Seq: 1, Key: "invoices", Token: 1 << 52, Waiters: 1}}
	if got := s.Pending(a); !reflect.DeepEqual(got, want) {
		t.Errorf("pending %+v, want %+v", got, want)
	}

	// It is written as of the present version, and that is the same table.
	again, err := Restore(bytes.NewReader(image(s)))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != s.Digest() {
		t.Error("what was restored twice is another table")
	}

	// And it goes on from there.
	for _, step := range []struct {
		c    Command
		want Outcome
	}{
		{Acquire{Session: a, Seq: 2, Key: "orders", Try: true}, Outcome{Code: Founding}},
		{Acquire{Session: b, Seq: 2, Key: "orders", Try: true}, Outcome{Code: Held, Holder: Holder{Session: a, Client: "billing", Node: "n1", Token: 1<<52 + 1}}},
		{Acquire{Session: a, Seq: 8, Key: "invoices", MaxWaiters: 1}, Outcome{Code: TooManyWaiters, Limit: 1}},
		{Acquire{Session: a, Seq: 7, Key: "orders"}, Outcome{Code: Withdrawn}}, // seen
		{Acquire{Session: b, Seq: 40, Key: "k"}, Outcome{Code: Withdrawn}},
		{Acquire{Session: b, Seq: 1, Key: "invoices"}, Outcome{Code: Queued, Behind: 1}},
		{Release{Session: a, Token: 1 << 52}, Outcome{Code: OK}},
		{Acquire{Session: b, Seq: 1, Key: "invoices"}, Outcome{Code: Granted, Token: 1<<52 + 3}},
		{Withdraw{Session: b, Seq: 3}, Outcome{Code: OK}},
		{Close{Session: a}, Outcome{Code: OK}},
	} {
		if got, _ := s.Apply(step.c); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%#v: %+v, want %+v", step.c, got, step.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}

	if s, err = Restore(bytes.NewReader(history(t, "snapshot-empty-v1.hex"))); err != nil {
		t.Fatal(err)
	}
	if s.Digest() != New().Digest() {
		t.Error("an empty table is not one")
	}
}

// TestImageHasAllOfTheTables compares the tables themselves, so that a field which
// is neither written nor read shows, and sees to it that rich sets each.
func TestImageHasAllOfTheTables(t *testing.T) {
	s := rich(t)
	r, err := Restore(bytes.NewReader(image(s)))
	if err != nil {
		t.Fatal(err)
	}
	unset := make(map[string]bool)
	sets := func(v reflect.Value) {
		for i := range v.NumField() {
			name := fmt.Sprint(v.Type(), ".", v.Type().Field(i).Name)
			if _, ok := unset[name]; !ok {
				unset[name] = true
			}
			if !v.Field(i).IsZero() {
				unset[name] = false
			}
		}
	}
	sameTable(t, &s.keys, &r.keys, func(k *record) record {
		c := *k
		c.epoch = 1
		sets(reflect.ValueOf(c))
		for _, g := range c.holders {
			sets(reflect.ValueOf(g))
			if g.ghost != nil {
				sets(reflect.ValueOf(*g.ghost))
			}
		}
		for _, w := range c.queue {
			sets(reflect.ValueOf(w))
		}
		c.holders = append([]grant(nil), c.holders...)
		c.queue = append([]waiter(nil), c.queue...)
		return c
	})
	sameTable(t, &s.sessions, &r.sessions, func(o *session) session {
		c := *o
		c.epoch = 1
		sets(reflect.ValueOf(c))
		c.index = nil
		return c
	})
	sameTable(t, &s.sets, &r.sets, func(keys []string) []string { return keys })
	sameTable(t, &s.answers, &r.answers, func(a *answer) answer {
		sets(reflect.ValueOf(*a))
		return *a
	})
	sets(reflect.ValueOf(s.Snapshot().header))
	for name := range unset {
		if unset[name] {
			t.Errorf("%s is nowhere set", name)
		}
	}
	if s.Snapshot().header != r.Snapshot().header {
		t.Errorf("header %+v, restored as %+v", s.Snapshot().header, r.Snapshot().header)
	}
	if _, upTo, ok := r.Changes("", s.Commands(), 1); upTo != s.Commands() || !ok {
		t.Errorf("changes since the restore are not known: up to %d, %t", upTo, ok)
	}
	if _, _, ok := r.Changes("", s.Commands()-1, 1); ok {
		t.Error("changes before the restore are known")
	}
}

func sameTable[K comparable, V, C any](t *testing.T, a, b *table[K, V], content func(V) C) {
	t.Helper()
	if a.n == 0 {
		t.Error("an empty table proves nothing")
	}
	n := 0
	b.all(func(k K, v V) bool {
		n++
		of, ok := a.get(k)
		if got, want := content(v), content(of); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%v restored as\n%+v, was\n%+v", k, got, want)
		}
		return true
	})
	if n != a.n || n != b.n {
		t.Errorf("%d elements restored of %d; counted %d", n, a.n, b.n)
	}
}

// keyed is a record and its key, as they stand in an image.
type keyed struct {
	key string
	record
}

// anyRecord draws records, valid or not.
func anyRecord() *rapid.Generator[keyed] {
	return rapid.Custom(func(t *rapid.T) keyed {
		num := func() uint64 { return rapid.Uint64().Draw(t, "number") }
		flag := func() bool { return rapid.Bool().Draw(t, "flag") }
		text := func() string { return rapid.StringN(0, 5, -1).Draw(t, "text") }
		session := func() SessionID { return rapid.SampledFrom([]SessionID{{}, {1}}).Draw(t, "session") }
		k := keyed{text(), record{version: num(), last: Token(num()), rest: num(), value: text(), fade: flag(), unclean: flag()}}
		for range rapid.IntRange(0, 3).Draw(t, "holders") {
			g := grant{
				session: session(), seq: num(), token: Token(num()), former: Token(num()), at: num(), delay: num(),
				of: rapid.Uint32().Draw(t, "of"), mode: Mode(rapid.Byte().Draw(t, "mode")),
				tree: flag(), set: flag(), unseen: flag(), waited: flag(), asked: flag(), contended: flag(), broken: flag(), meta: text(),
			}
			if g.session == (SessionID{}) {
				g.ghost = &ghost{client: text(), node: text()}
				k.ghosts++
			}
			k.holders = append(k.holders, g)
		}
		for range rapid.IntRange(0, 3).Draw(t, "queue") {
			k.queue = append(k.queue, waiter{
				session: session(), seq: num(), since: num(), order: num(), at: num(), delay: num(), ifToken: Token(num()), upgrade: Token(num()),
				of: rapid.Uint32().Draw(t, "of"), mode: Mode(rapid.Byte().Draw(t, "mode")),
				tree: flag(), set: flag(), conditional: flag(), priority: rapid.Int8().Draw(t, "priority"),
				passed: rapid.Byte().Draw(t, "passed"), meta: text(),
				under: drawSlice(t, rapid.Map(rapid.Uint64(), asToken), "under"),
			})
		}
		return k
	})
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, roundTrip(anyRecord(),
		func(b []byte, k keyed) []byte { return k.append(b, k.key) },
		func(b []byte) (k keyed, rest []byte, err error) {
			r := &reader{b: b}
			k.key = k.read(r)
			return k, r.b, r.err
		}))
}

// TestImageStaysWhileApplyGoesOn takes images between commands that change
// everything, and reads them at the end, and from other goroutines meanwhile.
func TestImageStaysWhileApplyGoesOn(t *testing.T) {
	s := rich(t)
	type taken struct {
		image *Image
		bytes []byte
	}
	var all []taken
	var readers sync.WaitGroup
	take := func() {
		want := image(s)
		i := s.Snapshot()
		all = append(all, taken{i, want})
		readers.Go(func() {
			for range 3 {
				var got bytes.Buffer
				n, err := i.WriteTo(&got)
				if err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("an image changed while it was written: %d bytes, %v", n, err)
				}
			}
		})
	}
	a, b := session16("a"), session16("b")
	seq := uint64(100)
	for round := range 20 {
		take()
		for i := range 10 {
			id := a
			if i%2 == 1 {
				id = b
			}
			seq++
			key := fmt.Sprint("key ", i/2)
			out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: key})
			switch {
			case out.Code == Granted && i == 6:
				s.Apply(SetValue{Session: id, Token: out.Token, Rev: 1, Value: fmt.Append(nil, round), Fade: round%2 == 0})
				s.Apply(Downgrade{Session: id, Token: out.Token})
				s.Apply(Acquire{Session: b, Seq: seq + 2000, Key: key, Mode: Shared})
				s.Apply(Upgrade{Session: id, Seq: seq + 3000, Token: out.Token, Seen: []uint64{seq, seq + 2000}})
			case out.Code == Granted && i%4 == 0:
				s.Apply(Acquire{Session: id, Seq: seq + 1000, Key: key, Try: true, Seen: []uint64{seq}})
			case out.Code == Granted:
				s.Apply(Release{Session: id, Token: out.Token, Seen: []uint64{seq + 1000}})
			case i%3 == 0:
				s.Apply(Withdraw{Session: id, Seq: seq})
			}
		}
		take()
		switch round {
		case 3:
			s.Apply(Withdraw{Session: session16("d"), Seq: 2})
			s.Apply(Withdraw{Session: session16("e"), Seq: 3})
		case 5:
			s.Apply(Release{Session: a, Token: 1 << 52})
		case 7:
			s.Apply(Close{Session: session16("d")})
		case 9:
			s.Apply(Silence{Session: b, Term: 3})
		case 12:
			s.Apply(Expire{Session: a, Term: 3})
		case 15:
			s.Apply(Close{Session: b})
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	for n, i := range all {
		var got bytes.Buffer
		if _, err := i.image.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), i.bytes) {
			t.Errorf("image %d has changed: %v", n, err)
		}
	}
}

// TestDamagedImagesAreRefused flips every bit, cuts at every byte, and appends.
func TestDamagedImagesAreRefused(t *testing.T) {
	early := history(t, "snapshot-v1.hex")
	good := image(rich(t))
	for _, good := range [][]byte{good, early} {
		if _, err := Restore(bytes.NewReader(good)); err != nil {
			t.Fatal(err)
		}
		for n := range good {
			if _, err := Restore(bytes.NewReader(good[:n])); err == nil {
				t.Errorf("an image cut at %d of %d is accepted", n, len(good))
			}
			for bit := range 8 {
				bad := bytes.Clone(good)
				bad[n] ^= 1 << bit
				if _, err := Restore(bytes.NewReader(bad)); err == nil {
					t.Errorf("an image with bit %d of byte %d flipped is accepted", bit, n)
				}
			}
		}
	}
	labelled := func(version byte, image []byte) []byte {
		return append(append([]byte(magic), version), image[len(magic)+1:]...)
	}
	for name, bad := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"twice":         append(bytes.Clone(good), good...),
		"later version": labelled(SnapshotVersion+1, good),
		"version 0":     labelled(0, good),
		"2 as 1":        labelled(1, good),
		"1 as 2":        labelled(2, early),
		"trailing at 1": append(bytes.Clone(early), 0),
		"not an image":  []byte(strings.Repeat("lock table", 10)),
		"no chunks":     append([]byte(magic), SnapshotVersion),
		"no header":     append(append([]byte(magic), SnapshotVersion), good[len(image(New())):]...),
	} {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestLyingSizesAllocateLittle: a few bytes that claim a gigabyte.
func TestLyingSizesAllocateLittle(t *testing.T) {
	bad := append([]byte(magic), SnapshotVersion, chunkHeader)
	bad = binary.LittleEndian.AppendUint32(bad, maxChunk)
	bad = append(bad, make([]byte, 100)...)
	if n := allocated(func() {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Error("accepted")
		}
	}); n > 1<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

// TestLyingCountsAllocateLittle: a count is believed as far as there are bytes.
func TestLyingCountsAllocateLittle(t *testing.T) {
	record := []byte{1, 'k', 1, 1, 0, 0, 0}
	many := binary.AppendUvarint(nil, MaxHolders)
	waiter := append([]byte{0, 1}, make([]byte, minWaiter-1)...)
	for name, tc := range map[string]struct {
		read func(*reader)
		b    []byte
	}{
		"holders":   {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record, many)},
		"waiters":   {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record, []byte{0}, many)},
		"under":     {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record, waiter, []byte{0xff, 1})},
		"waiters 1": {func(r *reader) { (&keyed{}).read1(r) }, slices.Concat([]byte{1, 'k', 1, 0}, many)},
		"set":       {func(r *reader) { readSet(r) }, []byte{0xff, 7}},
		"spent":     {func(r *reader) { (&session{}).read(r) }, slices.Concat(make([]byte, 16), []byte{1, 'c', 0, 9, 0, 0}, many)},
	} {
		r := &reader{b: append(tc.b, 1, 2, 3)}
		if n := allocated(func() { tc.read(r) }); n > 10_000 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
		if !errors.Is(r.err, errShort) && !errors.Is(r.err, errLimit) {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

// TestStrangeElementsAreRefused: what no append writes.
func TestStrangeElementsAreRefused(t *testing.T) {
	record := func(change func(b []byte)) func() error {
		return func() error {
			k := keyed{"k", record{version: 1, last: 1, holders: []grant{{session: SessionID{1}}}, queue: []waiter{{session: SessionID{2}}}}}
			b := k.append(nil, k.key)
			change(b)
			r := &reader{b: b}
			k.read(r)
			return r.end()
		}
	}
	// Where the flags are.
	const ofRecord, ofGrant = 5, 8 + 16 + 9
	const ofWaiter = 8 + minGrant + 1 + 16 + 9
	set := func(keys ...string) func() error {
		return func() error {
			r := &reader{b: appendStrings(nil, keys)}
			readSet(r)
			return r.end()
		}
	}
	for name, tc := range map[string]struct {
		read func() error
		want string
	}{
		"none":               {record(func([]byte) {}), ""},
		"known of a record":  {record(func(b []byte) { b[ofRecord] = 3 }), ""},
		"known of a grant":   {record(func(b []byte) { b[ofGrant] = 127 }), ""},
		"known of a waiter":  {record(func(b []byte) { b[ofWaiter] = 7 }), ""},
		"flag of a record":   {record(func(b []byte) { b[ofRecord] = 4 }), errFlags.Error()},
		"flag of a grant":    {record(func(b []byte) { b[ofGrant] = 128 }), errFlags.Error()},
		"flag of a waiter":   {record(func(b []byte) { b[ofWaiter] = 8 }), errFlags.Error()},
		"set":                {set("a", "b"), ""},
		"empty set":          {set(), "set of no keys"},
		"set twice the same": {set("a", "b", "b"), "keys of a set out of order"},
		"set in disorder":    {set("b", "a"), "keys of a set out of order"},
		"set too large":      {set(make([]string, MaxKeys+1)...), errLimit.Error()},
	} {
		switch err := tc.read(); {
		case err == nil && tc.want != "", err != nil && err.Error() != tc.want:
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}

	// Before there were delays, a holder had a session.
	b := history(t, "snapshot-v1.hex")
	i := bytes.Index(b, append([]byte("orders\x0c\x81\x80\x80\x80\x80\x80\x80\x08"), 'a'))
	b[i+len("orders")+9] = 0
	if _, err := Restore(bytes.NewReader(resum(b))); err == nil || !strings.Contains(err.Error(), "grant of no session") {
		t.Errorf("version 1: %v", err)
	}
}

// TestImpossibleImagesAreRefused: the checksums are right and the state is not.
func TestImpossibleImagesAreRefused(t *testing.T) {
	a, d := session16("a"), session16("d")
	key := func(s *State) *record { return s.edit("invoices") }
	for want, damage := range map[string]func(*State){
		"I1":  func(s *State) { s.edit("docs/a").holders[0].mode = Exclusive },
		"I2":  func(s *State) { s.last = 1 << 51 },
		"I3":  func(s *State) { s.sessions.del(session16("b")) },
		"I4":  func(s *State) { key(s).rest = 1 },
		"I5":  func(s *State) { key(s).queue[0].since = s.commands + 1 },
		"I6":  func(s *State) { key(s).queue[0].passed = MaxPassed + 1 },
		"I8":  func(s *State) { key(s).queue[0].seq = key(s).holders[0].seq; key(s).queue[0].session = a },
		"I9":  func(s *State) { s.lifted = false },
		"I10": func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).ttl = 1 },
		// Several of one number, told apart by the rest of the text.
		"token 4503599627370496 granted after token 4503599627370496": func(s *State) { s.edit("orders").holders[0].token = 1 << 52 },
		"is not spent":     func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = nil },
		"element in a for": func(s *State) { m := s.keys.shards[hashKey("orders")].m; s.keys.shards[hashKey("orders")+1].m = m },
		"spent seqs":       func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = spans{{1, 2}, {3, 9}} },
		"answered with":    func(s *State) { s.answers.set(request{a, 2}, &answer{out: Outcome{Code: OK}}) },
		"before founding":  func(s *State) { s.founded = false },
		"no cluster":       func(s *State) { s.cluster = ClusterID{} },
		"nothing to say":   func(s *State) { s.keys.set("free", &record{version: 1, rest: 1}) },
		"bound of":         func(s *State) { s.bound = 1 },
		"counts":           func(s *State) { s.keys.n++ },
		"key \"\\xff\"":    func(s *State) { s.keys.set("\xff", &record{version: 1, last: 1, rest: 1}) },
		"as one":           func(s *State) { s.edit("rest 1").rest = s.edit("rest 2").rest },
		"not among its":    func(s *State) { s.sets.del(request{d, 6}) },
		"is not at":        func(s *State) { s.sets.set(request{d, 6}, []string{"set/1", "set/2", "set/3"}) },
		"set of no keys":   func(s *State) { s.sets.set(request{d, 6}, nil) },
		"keys of a set":    func(s *State) { s.sets.set(request{d, 6}, []string{"set/2", "set/1"}) },
		"and 4503599627370506 before": func(s *State) {
			s.last++
			s.edit("set/2").last = s.last
			s.edit("set/2").holders[0].token = s.last
		},
		"no delay":     func(s *State) { s.edit("slow").holders[0].delay = 0 },
		"has no grant": func(s *State) { s.edit("docs/a").queue[0].upgrade = 1 },
		"permits of 1": func(s *State) {
			for i := range s.edit("pool").holders {
				s.edit("pool").holders[i].of = 1
			}
		},
		"of mode": func(s *State) { s.edit("orders").holders[0].mode = Permit + 1 },
		"above it": func(s *State) {
			s.last++
			s.edit("area").last = s.last
			s.edit("area").holders = []grant{{session: session16("b"), seq: 40, token: s.last}}
		},
		"under 258 grants": func(s *State) { key(s).queue[0].under = make([]Token, MaxUnder+2) },
	} {
		s := rich(t)
		damage(s)
		_, err := Restore(bytes.NewReader(image(s)))
		if want == "under 258 grants" {
			want = errLimit.Error() // which is found before
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if want != "element in a for" && s.Check() == nil {
			t.Errorf("%s: Check finds nothing", want)
		}
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.after {
		return f.after, io.ErrShortWrite
	}
	f.after -= len(b)
	return len(b), nil
}

func TestWriteErrorIsReturned(t *testing.T) {
	n, err := rich(t).Snapshot().WriteTo(&failing{after: 10})
	if n != 10 || err != io.ErrShortWrite {
		t.Errorf("%d, %v", n, err)
	}
}

// resum puts the checksums right of all chunks in an image.
func resum(b []byte) []byte {
	for rest := b[min(len(b), len(magic)+1):]; len(rest) >= 9; {
		size := int(binary.LittleEndian.Uint32(rest[1:]))
		if size > len(rest)-9 {
			break
		}
		binary.LittleEndian.PutUint32(rest[5+size:], checksum(rest[0], rest[5:5+size]))
		rest = rest[9+size:]
	}
	return b
}

func FuzzRestore(f *testing.F) {
	f.Add(image(New()))
	f.Add(image(founded()))
	f.Add(image(rich(f)))
	for _, name := range []string{"snapshot-v1.hex", "snapshot-empty-v1.hex"} {
		f.Add(history(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = resum(bytes.Clone(b)) // a fuzzer finds no checksums
		var s *State
		var err error
		if n := allocated(func() { s, err = Restore(bytes.NewReader(b)) }); n > 1<<20+1000*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err != nil {
			return
		}
		got := image(s)
		if b[len(magic)] == SnapshotVersion && !bytes.Equal(got, b) {
			t.Fatalf("%x is written again as %x", b, got)
		}
		again, err := Restore(bytes.NewReader(got))
		if err != nil || !bytes.Equal(image(again), got) {
			t.Fatalf("%x, written as %x, is not restored from that: %v", b, got, err)
		}
		if s.checkWaits() != nil {
			return // Restore takes that from the image
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for _, c := range everyCommand() {
			s.Apply(c)
			if err := s.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
		}
	})
}
