package machine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everyCommand has each kind of command, and each field set at least once.
func everyCommand() []Command {
	a, b := session16("a"), session16("b")
	return []Command{
		Found{Cluster: ClusterID{0xc1}, Floor: 1 << 52, TTL: 10_000},
		LeaderStart{Term: 3},
		Raise{Term: 23, Format: 2},
		Lift{Term: 4},
		Bound{Term: 5, TTL: 20_000},
		Open{Session: a, Client: "billing", Node: "n1", TTL: 5_000, Meta: "m"},
		Close{Session: a},
		Silence{Session: a, Term: 10},
		Hear{Session: a, Term: 11},
		Expire{Session: a, Term: 12},
		Acquire{Session: b, Seq: 1, Key: "k"},
		Acquire{
			Session: a, Seq: 6, Key: "invoices",
			Spec: Spec{
				Mode: Permit, Of: 5, Tree: true, Priority: -3, Delay: 2_000, Conditional: true, IfToken: 1 << 52, Meta: "é",
			},
			Try: true, MaxWaiters: 8, Under: []Token{1, MaxToken}, Seen: []uint64{1, 1 << 63},
		},
		Acquire{Session: a, Seq: 7, Keys: []string{"invoices", "orders"}, Spec: Spec{Mode: Shared}},
		Acquire{Session: a, Seq: 8, Keys: []string{"k"}},
		Acquire{Session: a, Seq: 9, Key: "k", Spec: Spec{Priority: 127}},
		Upgrade{Session: a, Seq: 10, Token: 11, Under: []Token{12}, Seen: []uint64{13}},
		Downgrade{Session: b, Token: 14, Seen: []uint64{15}},
		SetValue{Session: b, Token: 16, Rev: 18, Value: []byte("value"), Fade: true, Seen: []uint64{17}},
		Withdraw{Session: b, Seq: 9, Seen: []uint64{2}},
		Release{Session: b, Token: MaxToken, Seen: []uint64{3, 4}},
		Release{Session: b, Token: 18, To: "reports", Seen: []uint64{19}},
		Ask{Session: a, Key: "orders"},
		Break{Session: a, Key: "orders", Token: 20},
		EndDelay{Token: 21, Term: 22},
		Unknown{Raw: "\xf0future"},
	}
}

func everyOutcome() []Outcome {
	return []Outcome{
		{Code: OK},
		{Code: Granted, Token: MaxToken},
		{Code: Granted, Token: 8, Waiters: 1<<32 - 1, Value: "value", Unclean: true},
		{Code: Granted, Token: 9, Value: "\x00"},
		{Code: Queued, Behind: 1<<32 - 1},
		{Code: Held, Holder: Holder{Session: session16("a"), Client: "billing", Node: "n1", Token: 7}},
		{Code: Held, Holder: Holder{Client: "billing", Token: 7, Key: "in/voices"}},
		{Code: Deadlock, Cycle: []Link{{"billing", "invoices", 10}, {"reports", "orders", 0}}},
		{Code: BadCommand, Field: "Key", Limit: MaxKey},
		{Code: WrongTerm, Limit: 1<<64 - 1},
	}
}

func everyEvent() []Event {
	a := session16("a")
	return []Event{
		{Kind: EventGranted, Session: a, Seq: 3, Key: "invoices", Token: 7},
		{Kind: EventGranted, Session: a, Seq: 3, Key: "invoices", Token: 7, Waiters: 1, Value: "value", Unclean: true},
		{Kind: EventLost, Session: a, Seq: 3, Key: "invoices", Token: 7, Reason: Expired},
		{Kind: EventLost, Session: a, Seq: 3, Key: "invoices", Token: 7, Reason: Broken},
		{Kind: EventEnded, Session: a, Reason: Closed},
		{Kind: EventChanged, Key: "invoices"},
		{Kind: EventRefused, Session: a, Seq: 3, Key: "invoices", Code: Changed, Token: 7},
		{Kind: EventAsked, Session: a, Seq: 3, Key: "invoices", Token: 7, By: "reports"},
		{Kind: EventContended, Session: a, Seq: 3, Key: "invoices", Token: 7},
		{Kind: EventDelayed, Key: "invoices", Token: 7, Delay: 2_000},
	}
}

// golden compares b with a file of hexadecimal lines, or rewrites it. The bytes
// of a version never change: a difference needs a new version, and a new file.
func golden(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *rewrite {
		var text strings.Builder
		for rest := b; len(rest) > 0; {
			n := min(32, len(rest))
			text.WriteString(hex.EncodeToString(rest[:n]) + "\n")
			rest = rest[n:]
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := history(t, name)
	if !bytes.Equal(b, want) {
		t.Errorf("%s: the encoding has changed; old logs and other voters have\n%x\nnot\n%x", file, want, b)
	}
	return want
}

// history reads a golden file, also of a version no longer written.
func history(t testing.TB, name string) []byte {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b
}

// anyCommand draws a command of any kind, in and out of every limit of Apply's.
func anyCommand() *rapid.Generator[Command] {
	return rapid.Custom(func(t *rapid.T) Command {
		num := func(name string) uint64 {
			return rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 300), rapid.Uint64()).Draw(t, name)
		}
		text := func(name string) string {
			return rapid.OneOf(rapid.Just(""), rapid.StringN(0, 8, -1), rapid.Just("\xff\x00"), rapid.Just(strings.Repeat("long", 50))).Draw(t, name)
		}
		bytes := func(name string) []byte {
			if v := text(name); v != "" {
				return []byte(v)
			}
			return nil
		}
		session := func() SessionID { return rapid.SampledFrom([]SessionID{{}, {1}, session16("abc")}).Draw(t, "session") }
		token := func(name string) Token { return Token(num(name)) }
		tokens := func() []Token { return drawSlice(t, rapid.Map(rapid.Uint64(), asToken), "under") }
		seen := func() []uint64 { return drawSlice(t, rapid.Uint64(), "seen") }
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		switch rapid.IntRange(0, 18).Draw(t, "type") {
		case 0:
			return Found{Cluster: ClusterID(session()), Floor: token("floor"), TTL: num("ttl")}
		case 1:
			return LeaderStart{Term: num("term")}
		case 2:
			return Lift{Term: num("term")}
		case 3:
			return Bound{Term: num("term"), TTL: num("ttl")}
		case 4:
			return Open{Session: session(), Client: text("client"), Node: text("node"), TTL: num("ttl"), Meta: text("meta")}
		case 5:
			return Withdraw{Session: session(), Seq: num("seq"), Seen: seen()}
		case 6:
			return Release{Session: session(), Token: token("token"), To: text("to"), Seen: seen()}
		case 7:
			return Silence{Session: session(), Term: num("term")}
		case 8:
			return Hear{Session: session(), Term: num("term")}
		case 9:
			return Expire{Session: session(), Term: num("term")}
		case 10:
			return Close{Session: session()}
		case 11:
			return Upgrade{Session: session(), Seq: num("seq"), Token: token("token"), Under: tokens(), Seen: seen()}
		case 12:
			return Downgrade{Session: session(), Token: token("token"), Seen: seen()}
		case 13:
			return SetValue{Session: session(), Token: token("token"), Rev: num("rev"), Value: bytes("value"), Fade: flag("fade"), Seen: seen()}
		case 14:
			return Ask{Session: session(), Key: text("key")}
		case 15:
			return Break{Session: session(), Key: text("key"), Token: token("token")}
		case 16:
			if rapid.Bool().Draw(t, "raise") {
				return Raise{Term: num("term"), Format: num("format")}
			}
			return EndDelay{Token: token("token"), Term: num("term")}
		}
		a := Acquire{
			Session: session(), Seq: num("seq"), Key: text("key"), Try: flag("try"),
			MaxWaiters: rapid.Uint32().Draw(t, "waiters"), Spec: Spec{Meta: text("meta")}, Seen: seen(),
		}
		// Each attribute alone now and then, for the sake of its bit.
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 8), 0, 4).Draw(t, "more") {
			switch n {
			case 0:
				a.Keys = drawSlice(t, rapid.StringN(0, 3, -1), "keys")
			case 1:
				a.Mode = Mode(rapid.SampledFrom([]uint8{1, 2, 3, 255}).Draw(t, "mode"))
			case 2:
				a.Of = rapid.Uint32().Draw(t, "of")
			case 3:
				a.Tree = true
			case 4:
				a.Priority = rapid.Int8().Draw(t, "priority")
			case 5:
				a.Delay = num("delay")
			case 6:
				a.Conditional = true
			case 7:
				a.IfToken = token("if")
			case 8:
				a.Under = tokens()
			}
		}
		return a
	})
}

func asToken(n uint64) Token { return Token(n) }

// drawSlice draws a few elements, or none and then nil.
func drawSlice[T any](t *rapid.T, of *rapid.Generator[T], name string) []T {
	all := rapid.SliceOfN(of, 0, 3).Draw(t, name)
	if len(all) == 0 {
		return nil
	}
	return all
}

func anyOutcome() *rapid.Generator[Outcome] {
	return rapid.Custom(func(t *rapid.T) Outcome {
		o := Outcome{
			Code:   Code(rapid.Byte().Draw(t, "code")),
			Token:  Token(rapid.Uint64().Draw(t, "token")),
			Behind: rapid.Uint32().Draw(t, "behind"),
			Field:  rapid.StringN(0, 5, -1).Draw(t, "field"),
			Limit:  rapid.Uint64().Draw(t, "limit"),
		}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "more") {
			switch n {
			case 0:
				o.Waiters = rapid.Uint32().Draw(t, "waiters")
			case 1:
				o.Value = rapid.StringN(0, 200, -1).Draw(t, "value")
			case 2:
				o.Unclean = true
			case 3:
				o.Holder = rapid.SampledFrom([]Holder{{Session: SessionID{1}}, {Client: "c"}, {Node: "n"}, {Token: 1}, {Key: "k"}}).Draw(t, "holder")
			case 4:
				o.Cycle = make([]Link, rapid.SampledFrom([]int{1, 2, MaxCycle}).Draw(t, "cycle"))
				o.Cycle[0] = Link{"client", "key", Token(rapid.Uint64().Draw(t, "token"))}
			}
		}
		return o
	})
}

func anyEvent() *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		e := Event{
			Kind:    EventKind(rapid.Byte().Draw(t, "kind")),
			Session: SessionID{rapid.Byte().Draw(t, "session")},
			Seq:     rapid.Uint64().Draw(t, "seq"),
			Key:     rapid.StringN(0, 5, -1).Draw(t, "key"),
			Token:   Token(rapid.Uint64().Draw(t, "token")),
			Reason:  Reason(rapid.Byte().Draw(t, "reason")),
		}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 3).Draw(t, "more") {
			switch n {
			case 0:
				e.Code = Code(rapid.Byte().Draw(t, "code"))
			case 1:
				e.Waiters = rapid.Uint32().Draw(t, "waiters")
			case 2:
				e.Value = rapid.StringN(0, 200, -1).Draw(t, "value")
			case 3:
				e.Unclean = true
			case 4:
				e.By = rapid.StringN(0, 5, -1).Draw(t, "by")
			case 5:
				e.Delay = rapid.Uint64().Draw(t, "delay")
			}
		}
		return e
	})
}

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
	// As after forgetting thousands of keys.
	s.Clock(1_700_000_000_000)
	s.forgotten = 1<<52 - 1

	b, d, e, f := session16("b"), session16("d"), session16("e"), session16("f")
	apply(Open{Session: d, Client: "docs", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: e, Client: "editor", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: f, Client: "flaky", Node: "n4", TTL: 5_000}, OK)

	// A waiting upgrade, and a granted upgrade.
	shared := apply(Acquire{Session: d, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared}}, Granted)
	apply(Acquire{Session: e, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared, Meta: "reads"}}, Granted)
	apply(Upgrade{Session: d, Seq: 2, Token: shared}, Queued)
	shared = apply(Acquire{Session: e, Seq: 2, Key: "docs/b", Spec: Spec{Mode: Shared}}, Granted)
	apply(Upgrade{Session: e, Seq: 3, Token: shared}, Granted)

	// Permits, and a waiter passed by another.
	permitD := apply(Acquire{Session: d, Seq: 3, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}}, Granted)
	permitE := apply(Acquire{Session: e, Seq: 4, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}}, Granted)
	apply(Acquire{Session: b, Seq: 19, Key: "pool", Spec: Spec{Mode: Permit, Of: 3}}, WrongCapacity)
	apply(Acquire{Session: b, Seq: 20, Key: "pool", Spec: Spec{Mode: Permit, Of: 2, Priority: -1}}, Queued)
	apply(Acquire{Session: b, Seq: 21, Key: "pool", Spec: Spec{Mode: Permit, Of: 2, Priority: 5, Delay: 100}}, Queued)

	// A tree with a waiter under a permit, and the cycle that a further request
	// would close.
	tree := apply(Acquire{Session: d, Seq: 4, Key: "area/north", Spec: Spec{Tree: true}}, Granted)
	apply(Acquire{Session: e, Seq: 5, Key: "area/north/x", Under: []Token{permitE}}, Queued)
	apply(Acquire{Session: e, Seq: 9, Key: "area", Spec: Spec{Tree: true}}, Queued)
	apply(Acquire{Session: d, Seq: 5, Key: "pool", Spec: Spec{Mode: Permit, Of: 2}, Under: []Token{permitD, tree}}, Deadlock)

	// Requests for several keys.
	apply(Acquire{Session: d, Seq: 6, Keys: []string{"set/1", "set/2"}}, Granted)
	apply(Acquire{Session: e, Seq: 6, Keys: []string{"set/2", "set/3"}, Spec: Spec{Mode: Shared}}, Queued)

	// Idle keys: with a lasting value, with a fading value, without a value.
	for i, c := range []SetValue{{Value: []byte("kept")}, {Value: []byte("fading"), Fade: true}, {}} {
		c.Session, c.Rev = d, 1
		c.Token = apply(Acquire{Session: d, Seq: 7 + uint64(i), Key: fmt.Sprint("rest ", i)}, Granted)
		apply(c, OK)
		apply(Release{Session: d, Token: c.Token}, OK)
	}

	// A ghost, a broken grant, an asked holder, and a waiter refused late.
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

// keyed is a record with its key, as in an image.
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
				requestID: requestID{session(), num()}, since: num(), order: num(), at: num(), upgrade: Token(num()), set: flag(),
				passed: rapid.Byte().Draw(t, "passed"), Spec: spec(),
				under: drawSlice(t, rapid.Map(rapid.Uint64(), asToken), "under"),
			})
		}
		return k
	})
}
