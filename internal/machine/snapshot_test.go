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

	"github.com/wardmote/wardmote/internal/testrounds"
	"pgregory.net/rapid"
)

// richCommands are the plain part of rich.
func richCommands() []Command {
	a, b, c := session16("a"), session16("b"), session16("c")
	return []Command{
		Found{Cluster: ClusterID{0xc1}, Floor: 1 << 52, TTL: 10_000},
		LeaderStart{Term: 3},
		Open{Session: a, Client: "billing", Node: "n1", TTL: 5_000, Meta: "m"},
		Open{Session: b, Client: "reports", Node: "n2", TTL: 10_000},
		Open{Session: c, Client: "idle", TTL: 300},
		Acquire{Session: a, Seq: 1, Key: "invoices", Spec: Spec{Meta: "first"}},
		Acquire{Session: b, Seq: 1, Key: "invoices", Spec: Spec{Meta: "second"}},
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
	for _, c := range richCommands() {
		s.Apply(c)
	}
	apply(Raise{Term: 3, Format: MaxFormat}, OK)
	// What comes from forgetting thousands of keys.
	s.Clock(1_700_000_000_000)
	s.forgotten = 1<<52 - 1

	b, d, e, f := session16("b"), session16("d"), session16("e"), session16("f")
	apply(Open{Session: d, Client: "docs", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: e, Client: "editor", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: f, Client: "flaky", Node: "n4", TTL: 5_000}, OK)

	// An upgrade that waits, and one that was granted.
	shared := apply(Acquire{Session: d, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared}}, Granted)
	apply(Acquire{Session: e, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared, Meta: "reads"}}, Granted)
	apply(Upgrade{Session: d, Seq: 2, Token: shared}, Queued)
	shared = apply(Acquire{Session: e, Seq: 2, Key: "docs/b", Spec: Spec{Mode: Shared}}, Granted)
	apply(Upgrade{Session: e, Seq: 3, Token: shared}, Granted)

	// Permits: one that waits is passed by another.
	permitD := apply(Acquire{Session: d, Seq: 3, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}}, Granted)
	permitE := apply(Acquire{Session: e, Seq: 4, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}}, Granted)
	apply(Acquire{Session: b, Seq: 19, Key: "pool", Spec: Spec{Mode: Permit, Of: 3}}, WrongCapacity)
	apply(Acquire{Session: b, Seq: 20, Key: "pool", Spec: Spec{Mode: Permit, Of: 2, Priority: -1}}, Queued)
	apply(Acquire{Session: b, Seq: 21, Key: "pool", Spec: Spec{Mode: Permit, Of: 2, Priority: 5, Delay: 100}}, Queued)

	// A tree, waited for under a permit, and the cycle that this would close.
	tree := apply(Acquire{Session: d, Seq: 4, Key: "area/north", Spec: Spec{Tree: true}}, Granted)
	apply(Acquire{Session: e, Seq: 5, Key: "area/north/x", Under: []Token{permitE}}, Queued)
	apply(Acquire{Session: e, Seq: 9, Key: "area", Spec: Spec{Tree: true}}, Queued)
	apply(Acquire{Session: d, Seq: 5, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}, Under: []Token{permitD, tree}}, Deadlock)

	// Requests for several keys.
	apply(Acquire{Session: d, Seq: 6, Keys: []string{"set/1", "set/2"}}, Granted)
	apply(Acquire{Session: e, Seq: 6, Keys: []string{"set/2", "set/3"}, Spec: Spec{Mode: Shared}}, Queued)

	// Keys at rest: with a value, with one that may fade, with none.
	for i, c := range []SetValue{{Value: []byte("kept")}, {Value: []byte("fading"), Fade: true}, {}} {
		c.Session, c.Rev = d, 1
		c.Token = apply(Acquire{Session: d, Seq: 7 + uint64(i), Key: fmt.Sprint("rest ", i)}, Granted)
		apply(c, OK)
		apply(Release{Session: d, Token: c.Token}, OK)
	}

	// A delay that runs, a grant that was taken away, one that is asked for, and a
	// waiter refused when its turn came.
	apply(Acquire{Session: f, Seq: 1, Key: "slow", Spec: Spec{Delay: 5_000, Meta: "left"}}, Granted)
	apply(Expire{Session: f, Term: 3}, OK)
	apply(Acquire{Session: d, Seq: 10, Key: "slow"}, Queued)
	apply(Break{Session: b, Key: "broken", Token: apply(Acquire{Session: d, Seq: 11, Key: "broken"}, Granted)}, OK)
	apply(Ask{Session: d, Key: "orders"}, OK)
	late := apply(Acquire{Session: d, Seq: 12, Key: "late"}, Granted)
	apply(Acquire{Session: b, Seq: 22, Key: "late"}, Queued)
	apply(Acquire{Session: e, Seq: 7, Key: "late", Spec: Spec{Conditional: true, IfToken: late}}, Queued)
	apply(Release{Session: d, Token: late}, OK)
	apply(Acquire{Session: e, Seq: 8, Key: "late", Spec: Spec{Conditional: true, IfToken: late + 1, Meta: "if"}}, Queued)

	value := apply(Acquire{Session: e, Seq: 30, Key: "value", Spec: Spec{Priority: 3, Conditional: true, IfToken: late}}, Granted)
	apply(SetValue{Session: e, Token: value, Rev: 3, Value: []byte("v")}, OK)
	s.keys.edit("value", func(r *record) { r.holders[0].full = true }) // as after 64 MiB

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
	want := golden(t, "snapshot-v1.hex", image(rich(t)))
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
	golden(t, "snapshot-empty-v1.hex", image(New()))
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
	var setsOf func(name string, v reflect.Value)
	setsOf = func(of string, v reflect.Value) {
		for i := range v.NumField() {
			name := of + "." + v.Type().Field(i).Name
			if v.Type().Field(i).Anonymous {
				setsOf(name, v.Field(i))
				continue
			}
			if _, ok := unset[name]; !ok {
				unset[name] = true
			}
			if !v.Field(i).IsZero() {
				unset[name] = false
			}
		}
	}
	sets := func(v reflect.Value) { setsOf(v.Type().String(), v) }
	sameTable(t, &s.keys.table, &r.keys.table, func(k *record) record {
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
	sets(reflect.ValueOf(s.header))
	for name := range unset {
		if unset[name] {
			t.Errorf("%s is nowhere set", name)
		}
	}
	if s.header != r.header {
		t.Errorf("header %+v, restored as %+v", s.header, r.header)
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
		spec := func() Spec {
			return Spec{
				Mode: Mode(rapid.Byte().Draw(t, "mode")), Of: rapid.Uint32().Draw(t, "of"), Tree: flag(),
				Priority: rapid.Int8().Draw(t, "priority"), Delay: num(), Conditional: flag(), IfToken: Token(num()), Meta: text(),
			}
		}
		k := keyed{text(), record{version: num(), last: Token(num()), idle: num(), value: text(), fade: flag(), unclean: flag()}}
		for range rapid.IntRange(0, 3).Draw(t, "holders") {
			g := grant{
				token: Token(num()), first: Token(num()), former: Token(num()), rev: num(), full: flag(), at: num(),
				set: flag(), unseen: flag(), waited: flag(), asked: flag(), contended: flag(), broken: flag(), Spec: spec(),
			}
			if flag() {
				g.ghost = &ghost{client: text(), node: text()}
			} else {
				g.session, g.seq = session(), num()
			}
			k.addHolder(g)
		}
		for range rapid.IntRange(0, 3).Draw(t, "queue") {
			k.insertWaiter(len(k.queue), waiter{
				session: session(), seq: num(), since: num(), order: num(), at: num(), upgrade: Token(num()), set: flag(),
				passed: rapid.Byte().Draw(t, "passed"), Spec: spec(),
				under: drawSlice(t, rapid.Map(rapid.Uint64(), asToken), "under"),
			})
		}
		return k
	})
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, roundTrip(anyRecord(),
		func(b []byte, k keyed) []byte { return k.append(b, k.key) },
		func(b []byte) (k keyed, err error) {
			r := &reader{b: b}
			k.key = k.read(r)
			return k, r.finish()
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
				s.Apply(Acquire{Session: b, Seq: seq + 2000, Key: key, Spec: Spec{Mode: Shared}})
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
	good := image(rich(t))
	if _, err := Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := Restore(bytes.NewReader(good[:n])); err == nil {
			t.Errorf("an image cut at %d of %d is accepted", n, len(good))
		}
		// One bit of each byte; all of them in a full run.
		for i := range testrounds.Rounds(1, 8) {
			bad := bytes.Clone(good)
			bad[n] ^= 1 << ((n + i) % 8)
			if _, err := Restore(bytes.NewReader(bad)); err == nil {
				t.Errorf("an image with bit %d of byte %d flipped is accepted", (n+i)%8, n)
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
	many := binary.AppendUvarint(nil, MaxHolders)
	record := func(bits byte) []byte { return []byte{1, 'k', 1, bits} }
	waiter := append(append([]byte{1}, make([]byte, 16+4)...), waiterUnder)
	for name, tc := range map[string]struct {
		read func(*reader)
		b    []byte
	}{
		"holders": {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record(recordHolders), many)},
		"waiters": {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record(recordQueue), many)},
		"under":   {func(r *reader) { (&keyed{}).read(r) }, slices.Concat(record(recordQueue), waiter, []byte{0xff, 1})},
		"set":     {func(r *reader) { readSet(r) }, []byte{0xff, 7}},
		"spent":   {func(r *reader) { (&session{}).read(r) }, slices.Concat(make([]byte, 16), []byte{1, 'c', 0, 9, 0, 0}, many)},
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

// TestStrangeElementsAreRefused: bytes that no append writes.
func TestStrangeElementsAreRefused(t *testing.T) {
	record := func(b ...byte) func() error {
		return func() error {
			r := &reader{b: append([]byte{1, 'k', 1}, b...)}
			(&keyed{}).read(r)
			return r.finish()
		}
	}
	// grant and waiter are of session 0 and seq 1, from their bits on.
	grant := func(b ...byte) func() error {
		return record(append([]byte{recordHolders, 1, 1, 0}, b...)...)
	}
	held := func(bits byte, rest ...byte) func() error {
		return grant(append(append([]byte{bits}, make([]byte, 17)...), rest...)...)
	}
	waiter := func(b ...byte) func() error {
		return record(append(append([]byte{recordQueue, 1}, make([]byte, 20)...), b...)...)
	}
	set := func(keys ...string) func() error {
		return func() error {
			r := &reader{b: appendStrings(nil, keys)}
			readSet(r)
			return r.finish()
		}
	}
	for name, tc := range map[string]struct {
		read func() error
		want string
	}{
		"plain record":        {record(0), ""},
		"known bits":          {record(recordFade | recordUnclean), ""},
		"unknown bit":         {record(0x80, 0x01), errBits.Error()},
		"last token of 0":     {record(recordLast, 0), errForm.Error()},
		"idle as 0":           {record(recordIdle, 0), errForm.Error()},
		"value of no bytes":   {record(recordValue, 0), errForm.Error()},
		"no holders":          {record(recordHolders, 0), errForm.Error()},
		"no waiters":          {record(recordQueue, 0), errForm.Error()},
		"plain grant":         {held(0, 0), ""},
		"flags of a grant":    {held(grantSet|grantUnseen|grantWaited|grantContended|grantAsked|grantBroken, 0), ""},
		"unknown bit of one":  {grant(append([]byte{0x80, 0x08}, make([]byte, 18)...)...), errBits.Error()},
		"rev of 0":            {held(grantRev, 0, 0), errForm.Error()},
		"upgraded from none":  {grant(append([]byte{0x80, 0x02}, make([]byte, 20)...)...), errForm.Error()},
		"plain waiter":        {waiter(0, 0), ""},
		"waiter of a set":     {waiter(waiterSet, 0), ""},
		"unknown bit of that": {waiter(waiterBits+1, 0, 0), errBits.Error()},
		"upgrade of 0":        {waiter(waiterUpgrade, 0, 0), errForm.Error()},
		"passed 0 times":      {waiter(waiterPassed, 0, 0), errForm.Error()},
		"under none":          {waiter(waiterUnder, 0, 0), errForm.Error()},
		"set":                 {set("a", "b"), ""},
		"empty set":           {set(), "set of no keys"},
		"set twice the same":  {set("a", "b", "b"), "keys of a set out of order"},
		"set in disorder":     {set("b", "a"), "keys of a set out of order"},
		"set too large":       {set(make([]string, MaxKeys+1)...), errLimit.Error()},
	} {
		switch err := tc.read(); {
		case err == nil && tc.want != "", err != nil && err.Error() != tc.want:
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// writable returns key's record for a change that nothing derived follows.
func (s *State) writable(key string) *record {
	r, _ := s.keys.get(key)
	return s.keys.clone(key, r)
}

// TestImpossibleImagesAreRefused: the checksums are right and the state is not.
func TestImpossibleImagesAreRefused(t *testing.T) {
	a, d := session16("a"), session16("d")
	key := func(s *State) *record { return s.writable("invoices") }
	for want, damage := range map[string]func(*State){
		"I1":  func(s *State) { s.writable("docs/a").holders[0].Mode = Exclusive },
		"I2":  func(s *State) { s.last = 1 << 51 },
		"I3":  func(s *State) { s.sessions.del(session16("b")) },
		"I4":  func(s *State) { key(s).idle = 1 },
		"I5":  func(s *State) { key(s).queue[0].since = s.commands + 1 },
		"I6":  func(s *State) { key(s).queue[0].passed = MaxPassed + 1 },
		"I8":  func(s *State) { key(s).queue[0].seq = key(s).holders[0].seq; key(s).queue[0].session = a },
		"I9":  func(s *State) { s.lifted = false },
		"I10": func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).ttl = 1 },
		// Several of one number, told apart by the rest of the text.
		"token 4503599627370496 granted after token 4503599627370496": func(s *State) { s.writable("orders").holders[0].token = 1 << 52 },
		"is not spent":     func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = nil },
		"element in a for": func(s *State) { m := s.keys.shards[hashKey("orders")].m; s.keys.shards[hashKey("orders")+1].m = m },
		"spent seqs":       func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = spans{{1, 2}, {3, 9}} },
		"answered with":    func(s *State) { s.answers.set(requestID{a, 2}, &answer{out: Outcome{Code: OK}}) },
		"before founding":  func(s *State) { s.founded = false },
		"no cluster":       func(s *State) { s.cluster = ClusterID{} },
		"nothing is known": func(s *State) { s.keys.set("free", &record{version: 1, idle: 1}) },
		"bound of":         func(s *State) { s.bound = 1 },
		"counts":           func(s *State) { s.keys.n++ },
		"key \"\\xff\"":    func(s *State) { s.keys.set("\xff", &record{version: 1, last: 1, idle: 1}) },
		"under one number": func(s *State) { s.writable("rest 1").idle = s.writable("rest 2").idle },
		"not among its":    func(s *State) { s.sets.del(requestID{d, 6}) },
		"is not at":        func(s *State) { s.sets.set(requestID{d, 6}, []string{"set/1", "set/2", "set/3"}) },
		"set of no keys":   func(s *State) { s.sets.set(requestID{d, 6}, nil) },
		"keys of a set":    func(s *State) { s.sets.set(requestID{d, 6}, []string{"set/2", "set/1"}) },
		"and 4503599627370506 before": func(s *State) {
			s.last++
			s.writable("set/2").last = s.last
			s.writable("set/2").holders[0].token = s.last
		},
		"no delay":     func(s *State) { s.writable("slow").holders[0].Delay = 0 },
		"has no grant": func(s *State) { s.writable("docs/a").queue[0].upgrade = 1 },
		"permits of 1": func(s *State) {
			for i := range s.writable("pool").holders {
				s.writable("pool").holders[i].Of = 1
			}
		},
		"bad Mode": func(s *State) { s.writable("orders").holders[0].Mode = Permit + 1 },
		"above it": func(s *State) {
			s.last++
			s.writable("area").last = s.last
			s.writable("area").holders = []grant{{session: session16("b"), seq: 40, token: s.last}}
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
		if !bytes.Equal(got, b) {
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
