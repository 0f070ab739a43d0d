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
		Open{Session: a, Client: "billing", Node: "n1", Boot: 1 << 60, Dir: DirID{7, 15: 8}, TTL: 5_000, Meta: "m"},
		Close{Session: a},
		Silence{Session: a, Term: 10},
		Hear{Session: a, Term: 11},
		Expire{Session: a, Term: 12},
		Acquire{Session: b, Seq: 1, Key: "k"},
		Acquire{
			Session: a, Seq: 6, Key: "invoices",
			Spec: Spec{
				Mode: Permit, N: 4, Of: 5, Block: 49, Tree: true, Priority: -3, Delay: 2_000, Conditional: true, IfToken: 1 << 52, Meta: "é",
			},
			Try: true, MaxWaiters: 8, Under: []Token{1, MaxToken}, Seen: []uint64{1, 1 << 63},
		},
		Acquire{Session: a, Seq: 7, Keys: []string{"invoices", "orders"}, Spec: Spec{Mode: Shared}},
		Acquire{Session: a, Seq: 8, Keys: []string{"k"}},
		Acquire{Session: a, Seq: 47, Key: "k", Freed: []Token{48, MaxToken}},
		Acquire{Session: a, Seq: 9, Key: "k", Spec: Spec{Priority: 127}},
		Upgrade{Session: a, Seq: 10, Token: 11, Under: []Token{12}, Seen: []uint64{13}},
		Downgrade{Session: b, Token: 14, Seen: []uint64{15}},
		SetValue{Session: b, Token: 16, Rev: 18, Value: []byte("value"), Fade: true, Seen: []uint64{17}},
		Withdraw{Session: b, Seq: 9, More: []uint64{10, 12}, Seen: []uint64{2}},
		Release{Session: b, Token: MaxToken, Seen: []uint64{3, 4}},
		Release{Session: b, Token: 18, To: "reports", Seen: []uint64{19}},
		SetCapacity{Session: a, Seq: 44, Key: "pool", Of: 45, Seen: []uint64{46}},
		Extend{Session: a, Token: 49, Last: 50, Block: MaxBlock, Seen: []uint64{51}},
		SetCapacity{Session: a, Seq: 44, Key: "pool", Of: 45, Compare: true, From: 46},
		Ask{Session: a, Key: "orders"},
		Ask{Session: a, Key: "orders", Token: 19},
		Break{Session: a, Key: "orders", Token: 20},
		EndDelay{Token: 21, Term: 22},
		Forget{Node: "n1", Boot: 1<<60 + 1, Dir: DirID{7, 15: 8}},
		Enlist{Session: a, Seq: 24, Group: "orders", Shards: 64, Weight: 100, Seen: []uint64{25}},
		Enlist{
			Session: a, Seq: 26, Group: "orders", Shards: MaxShards, Weight: 1<<32 - 1, Succeeds: "billing",
			Drain: 5_000, Grace: 1 << 63, MaxMoves: 7,
		},
		Delist{Session: a, Seq: 27, Seen: []uint64{28}},
		Decline{Session: a, Seq: 29, Shard: 30, Version: 31, Seen: []uint64{32}},
		Resize{Session: a, Seq: 33, Group: "orders", From: 34, To: 35, Seen: []uint64{36}},
		Assign{Term: 37, Group: "orders", Version: 38, Moves: []Move{{0, 1}, {MaxShards - 1, 1<<32 - 1}}},
		Dismiss{Term: 39, Group: "orders", Caller: 40, Since: 41},
		Reshard{Term: 42, Group: "orders", Version: 43},
		EndSession{Session: a, Ref: b.Ref()},
		EndSlice{Session: a},
		AdmitSlice{},
		Unknown{Raw: "\xf0future"},
	}
}

func everyOutcome() []Outcome {
	return []Outcome{
		{Code: OK},
		{Code: Granted, Token: MaxToken},
		{Code: Granted, Token: 8, Waiters: 1<<32 - 1, Value: "value", Unclean: true, Block: 9},
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
		{Kind: EventGranted, Session: a, Seq: 3, Key: "invoices", Token: 7, Waiters: 1, Value: "value", Unclean: true, Block: 8},
		{Kind: EventLost, Session: a, Seq: 3, Key: "invoices", Token: 7, Reason: Expired},
		{Kind: EventLost, Session: a, Seq: 3, Key: "invoices", Token: 7, Reason: Broken},
		{Kind: EventEnded, Session: a, Reason: Closed},
		{Kind: EventEnded, Session: a, Reason: Ended},
		{Kind: EventChanged, Key: "invoices"},
		{Kind: EventRefused, Session: a, Seq: 3, Key: "invoices", Code: Changed, Token: 7},
		{Kind: EventRefused, Session: a, Seq: 3, Key: "invoices", Code: WrongCapacity, Limit: 5},
		{Kind: EventAsked, Session: a, Seq: 3, Key: "invoices", Token: 7, By: "reports"},
		{Kind: EventContended, Session: a, Seq: 3, Key: "invoices", Token: 7},
		{Kind: EventDelayed, Key: "invoices", Token: 7, Delay: 2_000},
		{Kind: EventPart, Session: a, Seq: 3, Key: "orders", Value: string(AppendPart(nil, everyPart()[1]))},
		{Kind: EventGroup, Key: "orders"},
		{Kind: EventRevoked, Session: a, Reason: Revoked},
		{Kind: EventEnding, Session: a, Reason: Expired},
	}
}

func everyPart() []Part {
	many := make([]uint32, 0, MaxShards)
	for i := range uint32(MaxShards) {
		if i%9 != 3 {
			many = append(many, i)
		}
	}
	return []Part{
		{},
		{Version: 1 << 40, Shards: 64, Drain: 5_000, Mine: []uint32{0, 1, 7, 63}},
		{Version: 7, Shards: 64, Resized: true},
		{Version: 8, Shards: 9, Mine: []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{Version: 9, Shards: MaxShards, Mine: many},
		{Version: 10, Shards: MaxShards, Mine: []uint32{MaxShards - 1}},
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
		switch rapid.IntRange(0, 27).Draw(t, "type") {
		case 0:
			return Found{Cluster: ClusterID(session()), Floor: token("floor"), TTL: num("ttl")}
		case 1:
			return LeaderStart{Term: num("term")}
		case 2:
			return Lift{Term: num("term")}
		case 3:
			return Bound{Term: num("term"), TTL: num("ttl")}
		case 4:
			return Open{Session: session(), Client: text("client"), Node: text("node"), Boot: num("boot"), Dir: DirID(session()), TTL: num("ttl"), Meta: text("meta")}
		case 5:
			return Withdraw{Session: session(), Seq: num("seq"), More: seen(), Seen: seen()}
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
			if rapid.Bool().Draw(t, "extend") {
				return Extend{Session: session(), Token: token("token"), Last: token("last"), Block: rapid.Uint32().Draw(t, "block"), Seen: seen()}
			}
			return Downgrade{Session: session(), Token: token("token"), Seen: seen()}
		case 13:
			return SetValue{Session: session(), Token: token("token"), Rev: num("rev"), Value: bytes("value"), Fade: flag("fade"), Seen: seen()}
		case 14:
			if rapid.Bool().Draw(t, "capacity") {
				return SetCapacity{Session: session(), Seq: num("seq"), Key: text("key"), Of: rapid.Uint32().Draw(t, "of"), Compare: flag("compare"), From: rapid.Uint32().Draw(t, "from"), Seen: seen()}
			}
			return Ask{Session: session(), Key: text("key"), Token: token("token")}
		case 15:
			return Break{Session: session(), Key: text("key"), Token: token("token")}
		case 16:
			if rapid.Bool().Draw(t, "raise") {
				return Raise{Term: num("term"), Format: num("format")}
			}
			return EndDelay{Token: token("token"), Term: num("term")}
		case 17:
			return Forget{Node: text("node"), Boot: num("boot"), Dir: DirID(session())}
		case 18:
			return Enlist{
				Session: session(), Seq: num("seq"), Group: text("group"), Shards: rapid.Uint32().Draw(t, "shards"),
				Weight: rapid.Uint32().Draw(t, "weight"), Succeeds: text("succeeds"), Drain: num("drain"), Grace: num("grace"),
				MaxMoves: rapid.Uint32().Draw(t, "moves"), Seen: seen(),
			}
		case 19:
			return Delist{Session: session(), Seq: num("seq"), Seen: seen()}
		case 20:
			return Decline{Session: session(), Seq: num("seq"), Shard: rapid.Uint32().Draw(t, "shard"), Version: num("version"), Seen: seen()}
		case 21:
			return Resize{
				Session: session(), Seq: num("seq"), Group: text("group"),
				From: rapid.Uint32().Draw(t, "from"), To: rapid.Uint32().Draw(t, "to"), Seen: seen(),
			}
		case 22:
			move := rapid.Custom(func(t *rapid.T) Move {
				return Move{rapid.Uint32().Draw(t, "shard"), rapid.Uint32().Draw(t, "caller")}
			})
			return Assign{Term: num("term"), Group: text("group"), Version: num("version"), Moves: drawSlice(t, move, "moves")}
		case 23:
			return Dismiss{Term: num("term"), Group: text("group"), Caller: rapid.Uint32().Draw(t, "caller"), Since: num("since")}
		case 24:
			return Reshard{Term: num("term"), Group: text("group"), Version: num("version")}
		case 25:
			return EndSession{Session: session(), Ref: SessionRef(session())}
		}
		a := Acquire{
			Session: session(), Seq: num("seq"), Key: text("key"), Try: flag("try"),
			MaxWaiters: rapid.Uint32().Draw(t, "waiters"), Spec: Spec{Meta: text("meta")}, Freed: tokens(), Seen: seen(),
		}
		// Each attribute alone now and then, for the sake of its bit.
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 10), 0, 4).Draw(t, "more") {
			switch n {
			case 0:
				a.Keys = drawSlice(t, rapid.StringN(0, 3, -1), "keys")
			case 1:
				a.Mode = Mode(rapid.SampledFrom([]uint8{1, 2, 3, 255}).Draw(t, "mode"))
			case 2:
				a.Of = rapid.Uint16().Draw(t, "of")
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
			case 9:
				a.N = rapid.Uint16().Draw(t, "n")
			case 10:
				a.Block = rapid.Uint16().Draw(t, "block")
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
				o.Unclean, o.Block = true, 7
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
				e.Unclean, e.Block = true, 7
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
	apply(Open{Session: d, Client: "docs", Node: "n3", Boot: 3, Dir: DirID{3}, TTL: 5_000}, OK)
	apply(Open{Session: e, Client: "editor", Node: "n3", TTL: 5_000}, OK)
	apply(Open{Session: f, Client: "flaky", Node: "n4", Boot: 8, Dir: DirID{4}, TTL: 5_000}, OK)
	apply(Forget{Node: "n4", Boot: 7, Dir: DirID{4}}, OK)
	apply(Forget{Node: "n5", Boot: 9, Dir: DirID{5}}, OK)

	// A waiting upgrade, and a granted upgrade.
	shared := apply(Acquire{Session: d, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared}}, Granted)
	apply(Acquire{Session: e, Seq: 1, Key: "docs/a", Spec: Spec{Mode: Shared, Meta: "reads"}}, Granted)
	apply(Upgrade{Session: d, Seq: 2, Token: shared}, Queued)
	shared = apply(Acquire{Session: e, Seq: 2, Key: "docs/b", Spec: Spec{Mode: Shared}}, Granted)
	apply(Upgrade{Session: e, Seq: 3, Token: shared}, Granted)

	// Permits, and a waiter passed by another.
	permitD := apply(Acquire{Session: d, Seq: 3, Key: "pool", Spec: Spec{Mode: Permit, N: 1, Of: 3}}, Granted)
	permitE := apply(Acquire{Session: e, Seq: 4, Key: "pool", Spec: Spec{Mode: Permit, N: 2, Of: 3}}, Granted)
	apply(Acquire{Session: b, Seq: 19, Key: "pool", Spec: Spec{Mode: Permit, N: 1, Of: 2}}, WrongCapacity)
	apply(Acquire{Session: b, Seq: 20, Key: "pool", Spec: Spec{Mode: Permit, N: 1, Of: 3, Priority: -1}}, Queued)
	apply(Acquire{Session: b, Seq: 21, Key: "pool", Spec: Spec{Mode: Permit, N: 2, Priority: 5, Delay: 100}}, Queued)

	// Capacities: of a key in use, lowered below the permits held and a request; of a
	// free key; and of a key that was granted, with a fading value.
	apply(SetCapacity{Session: b, Seq: 60, Key: "set pool", Of: 5}, OK)
	apply(Acquire{Session: d, Seq: 60, Key: "set pool", Spec: Spec{Mode: Permit, N: 3}}, Granted)
	apply(Acquire{Session: e, Seq: 60, Key: "set pool", Spec: Spec{Mode: Permit, N: 4}}, Queued)
	apply(Acquire{Session: e, Seq: 61, Key: "set pool", Spec: Spec{Mode: Permit, N: 2, Of: 9}}, Queued)
	apply(SetCapacity{Session: b, Seq: 61, Key: "set pool", Of: 2}, OK)
	apply(SetCapacity{Session: b, Seq: 62, Key: "free pool", Of: MaxHolders}, OK)
	fades := apply(Acquire{Session: d, Seq: 61, Key: "faded pool"}, Granted)
	apply(SetValue{Session: d, Token: fades, Rev: 1, Value: []byte("fades"), Fade: true}, OK)
	apply(SetCapacity{Session: b, Seq: 63, Key: "faded pool", Of: 1}, OK)
	apply(Release{Session: d, Token: fades}, OK)

	// A tree with a waiter under a permit, and the cycle that a further request
	// would close.
	tree := apply(Acquire{Session: d, Seq: 4, Key: "area/north", Spec: Spec{Tree: true}}, Granted)
	apply(Acquire{Session: e, Seq: 5, Key: "area/north/x", Under: []Token{permitE}}, Queued)
	apply(Acquire{Session: e, Seq: 9, Key: "area", Spec: Spec{Tree: true}}, Queued)
	apply(Acquire{Session: d, Seq: 5, Key: "pool", Spec: Spec{Mode: Permit, N: 1, Of: 3}, Under: []Token{permitD, tree}}, Deadlock)

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
	s.keys.edit("value", func(r *record) { r.holders[0].mark(markFull, true) }) // as after 64 MiB

	// Queues below a freed tree that are put off, a part and the whole of them.
	for i := range uint64(2) {
		key := fmt.Sprint("wide ", i)
		wide := apply(Acquire{Session: d, Seq: 70 + i, Key: key, Spec: Spec{Tree: true}}, Granted)
		for j := range uint64(2) {
			apply(Acquire{Session: e, Seq: 70 + 2*i + j, Key: fmt.Sprint(key, "/", j)}, Queued)
		}
		s.admits = int(1 - i)
		apply(Release{Session: d, Token: wide}, OK)
	}
	s.admits = MaxAdmitted

	// An ending session of which one slice was taken, and one of which none was.
	for i, n := range []string{"i", "j"} {
		id := session16(n)
		apply(Open{Session: id, Client: "long", Node: "n8", TTL: 5_000}, OK)
		for seq := range uint64(3) {
			apply(Acquire{Session: id, Seq: seq + 1, Key: fmt.Sprint("long ", n, seq)}, Granted)
		}
		s.slice = 1 - i
		apply(Close{Session: id}, Unfinished)
	}
	s.slice = MaxSlice

	// A revoked session that has not answered.
	h := session16("h")
	apply(Open{Session: h, Client: "ended", Node: "n7", TTL: 5_000}, OK)
	apply(Acquire{Session: h, Seq: 1, Key: "ended"}, Granted)
	apply(EndSession{Session: d, Ref: h.Ref()}, OK)

	// A grant that reserves tokens, and a waiter that will.
	apply(Acquire{Session: b, Seq: 70, Key: "kept", Spec: Spec{Block: 16}}, Granted)
	apply(Acquire{Session: b, Seq: 71, Key: "kept", Spec: Spec{Block: 32}}, Queued)

	richGroups(s, apply)
	if err := s.Check(); err != nil {
		tb.Fatal(err)
	}
	if n := s.Counts(); n != (Counts{Keys: 36, Grants: 24, Waiters: 16, Sessions: 9, Ending: 2, Answers: 12, Values: 2, Groups: 3, Capacities: 3}) {
		tb.Fatalf("not as rich as it should be: %+v", n)
	}
	return s
}

// richGroups is the part of rich about groups: one with an absent caller and one that
// stands by, one being resized, and one without callers.
func richGroups(s *State, apply func(Command, Code) Token) {
	b, d, e, g := session16("b"), session16("d"), session16("e"), session16("g")
	apply(Open{Session: g, Client: "gone", Node: "n6", TTL: 5_000}, OK)
	enlist := Enlist{Group: "group", Shards: 40, Weight: 100, Drain: 1_000, Grace: 2_000, MaxMoves: 3}
	for i, by := range []struct {
		id       SessionID
		succeeds string
	}{{g, ""}, {d, ""}, {e, "docs"}} {
		c := enlist
		c.Session, c.Seq, c.Succeeds, c.Weight = by.id, 50, by.succeeds, uint32(100*i)
		apply(c, OK)
	}
	moves := make([]Move, 38)
	for i := range moves {
		moves[i] = Move{uint32(i), uint32(1 + i%2)}
	}
	apply(Assign{Term: 3, Group: "group", Version: s.GroupVersion("group"), Moves: moves}, OK)
	apply(Delist{Session: g, Seq: 50}, OK) // absent

	apply(Enlist{Session: b, Seq: 50, Group: "grow", Shards: 8}, OK)
	apply(Resize{Session: b, Seq: 51, Group: "grow", From: 8, To: 16}, OK)
	apply(Enlist{Session: d, Seq: 51, Group: "grow", Shards: 16}, OK)

	apply(Enlist{Session: b, Seq: 52, Group: "idle", Shards: 5, Weight: 1}, OK)
	apply(Delist{Session: b, Seq: 52}, OK)
}

// anyRecord draws records, valid or not.
func anyRecord() *rapid.Generator[*record] {
	return rapid.Custom(func(t *rapid.T) *record {
		num := func() uint64 { return rapid.Uint64().Draw(t, "number") }
		flag := func() bool { return rapid.Bool().Draw(t, "flag") }
		text := func() string { return rapid.StringN(0, 5, -1).Draw(t, "text") }
		session := func() SessionID { return rapid.SampledFrom([]SessionID{{}, {1}}).Draw(t, "session") }
		spec := func() Spec {
			return Spec{
				Mode: Mode(rapid.Byte().Draw(t, "mode")), N: rapid.Uint16().Draw(t, "n"), Of: rapid.Uint16().Draw(t, "of"), Tree: flag(),
				Priority: rapid.Int8().Draw(t, "priority"), Delay: num(), Conditional: flag(), IfToken: Token(num()), Meta: text(),
			}
		}
		k := &record{
			key: text(), version: num(), last: Token(num()), idle: num(),
			extra: &extra{value: text(), fade: flag(), unclean: flag(), capacity: rapid.Uint16().Draw(t, "capacity"), fixed: flag()},
		}
		for range rapid.IntRange(0, 3).Draw(t, "holders") {
			g := grant{
				token: Token(num()), at: momentOf(num()), marks: marks(rapid.IntRange(0, 2*int(markBroken)-1).Draw(t, "marks")),
				terms: &terms{first: Token(num()), former: Token(num()), rev: num(), Spec: spec()},
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
