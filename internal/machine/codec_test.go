package machine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everyCommand has each kind of command, with every field set in one of them.
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

// history reads a golden file, of a version that may be no longer written.
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

func TestEntryEncodingIsGolden(t *testing.T) {
	want := everyCommand()
	file := golden(t, "entry-v1.hex", EncodeCommands(want))
	got, err := DecodeEntry(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%#v, want\n%#v", got, want)
	}
}

func TestAnswerEncodingsAreGolden(t *testing.T) {
	var frames [][]byte
	for _, o := range everyOutcome() {
		frames = append(frames, AppendOutcome(nil, o))
	}
	for _, e := range everyEvent() {
		frames = append(frames, AppendEvent(nil, e))
	}
	var all []byte
	for _, f := range frames {
		all = appendBytes(all, f)
	}
	r := reader{b: golden(t, "answers-v1.hex", all)}
	for _, want := range everyOutcome() {
		if got, err := DecodeOutcome(r.bytes()); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range everyEvent() {
		if got, err := DecodeEvent(r.bytes()); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if err := r.finish(); err != nil {
		t.Error(err)
	}
}

// TestFieldsOfALaterVersionArePassedOver: an outcome or event of a later version is
// read without the fields that this version does not know.
func TestFieldsOfALaterVersionArePassedOver(t *testing.T) {
	// The bits are a varint after the code: one more bit, and a field behind the rest.
	later := func(b []byte, known uint64) []byte {
		set, n := binary.Uvarint(b[1:])
		out := binary.AppendUvarint(b[:1:1], set|(known+1))
		return append(append(out, b[1+n:]...), "later"...)
	}
	for _, want := range everyOutcome() {
		if got, err := DecodeOutcome(later(AppendOutcome(nil, want), outcomeBits)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range everyEvent() {
		if got, err := DecodeEvent(later(AppendEvent(nil, want), eventBits)); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	// A snapshot is read by one version only.
	a := answer{out: Outcome{Code: Granted, Token: 7}}
	r := reader{b: append(later(AppendOutcome(nil, a.out), outcomeBits), 0, 0)}
	if a.read(&r); !errors.Is(r.err, errBits) {
		t.Errorf("an answer of a later version in a snapshot: %v", r.err)
	}
}

// setField sets field i of v, a struct, to something that is not zero.
func setField(t *testing.T, v reflect.Value, i int) {
	f := v.Field(i)
	switch f.Interface().(type) {
	case SessionID, ClusterID:
		f.Index(15).SetUint(9)
		return
	case Holder:
		setField(t, f, f.NumField()-1) // that it has Key; all of it is golden
		return
	}
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(true)
	case reflect.String:
		f.SetString("text")
	case reflect.Int8:
		f.SetInt(-128)
	case reflect.Uint8:
		f.SetUint(1)
	case reflect.Uint32:
		f.SetUint(1<<32 - 1)
	case reflect.Uint64:
		f.SetUint(1<<64 - 1)
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 2, 2)) // even of zeroes
	default:
		t.Fatalf("%v.%s is a %v", v.Type(), v.Type().Field(i).Name, f.Kind())
	}
}

// everyField calls f with v, a zero struct, once for each of its fields, and with
// that field set; for each field of the Spec that it embeds, instead of the Spec.
func everyField(t *testing.T, v reflect.Value, f func()) {
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			everyField(t, v.Field(i), f)
			continue
		}
		setField(t, v, i)
		f()
		v.Field(i).SetZero()
	}
}

// TestEveryFieldIsEncoded sets one field at a time, of each struct that has an
// encoding. A new field that was forgotten shows here.
func TestEveryFieldIsEncoded(t *testing.T) {
	check := func(empty any, again func(any) (any, error)) {
		v := reflect.New(reflect.TypeOf(empty)).Elem()
		everyField(t, v, func() {
			got, err := again(v.Interface())
			if err != nil || !reflect.DeepEqual(got, v.Interface()) {
				t.Errorf("%#v is decoded as %#v, %v", v.Interface(), got, err)
			}
		})
	}
	done := make(map[reflect.Type]bool)
	for _, c := range everyCommand() {
		if _, ok := c.(Unknown); ok || done[reflect.TypeOf(c)] {
			continue
		}
		done[reflect.TypeOf(c)] = true
		check(reflect.Zero(reflect.TypeOf(c)).Interface(), func(v any) (any, error) {
			return DecodeCommand(EncodeCommand(v.(Command)))
		})
	}
	if n := len(done); n != kinds {
		t.Errorf("%d types of commands", n)
	}
	check(Outcome{}, func(v any) (any, error) { return DecodeOutcome(AppendOutcome(nil, v.(Outcome))) })
	check(Event{}, func(v any) (any, error) { return DecodeEvent(AppendEvent(nil, v.(Event))) })
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
		// Each on its own now and then, which is when the form changes.
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

// TestEncodingsRoundTrip: a value that is encoded is decoded as it was; a part of its
// encoding is refused, and so are bytes after it; and bytes that differ in one place
// are refused, or are the encoding of another value.
func TestEncodingsRoundTrip(t *testing.T) {
	t.Run("command", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyCommand(), AppendCommand, DecodeCommand))
	})
	t.Run("outcome", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyOutcome(), AppendOutcome, known(DecodeOutcome, outcomeBits)))
	})
	t.Run("event", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyEvent(), AppendEvent, known(DecodeEvent, eventBits)))
	})
}

// known decodes, but refuses the fields of a later version.
func known[T any](decode func([]byte) (T, error), bits uint64) func([]byte) (T, error) {
	return func(b []byte) (v T, err error) {
		if len(b) > 1 {
			if set, n := binary.Uvarint(b[1:]); n > 0 && set&^bits != 0 {
				return v, errBits
			}
		}
		return decode(b)
	}
}

func roundTrip[T any](values *rapid.Generator[T], encode func([]byte, T) []byte, decode func([]byte) (T, error)) func(*rapid.T) {
	return func(t *rapid.T) {
		want := values.Draw(t, "value")
		b := encode([]byte("before"), want)[len("before"):]
		got, err := decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x is %#v, %v, and should be\n%#v", b, got, err, want)
		}
		if _, err := decode(append(bytes.Clone(b), 0)); !errors.Is(err, errTrailing) {
			t.Fatalf("%x and one byte more: %v", b, err)
		}
		part := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		if _, err := decode(part); err == nil {
			t.Fatalf("a part of %x is accepted", b)
		}
		bad := bytes.Clone(b)
		bad[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
		if other, err := decode(bad); err == nil {
			if again := encode(nil, other); !bytes.Equal(again, bad) {
				t.Fatalf("%x is encoded again as %x", bad, again)
			}
		}
	}
}

// TestOneFormForEachValue: a second form for a value is refused, and so is a count
// over its limit.
func TestOneFormForEachValue(t *testing.T) {
	command := func(b []byte) error { _, err := DecodeCommand(b); return err }
	outcome := func(b []byte) error { _, err := DecodeOutcome(b); return err }
	event := func(b []byte) error { _, err := DecodeEvent(b); return err }
	// raw is an Acquire of key k, from its bits on.
	raw := func(rest ...byte) []byte {
		a := session16("a")
		return append(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k'), rest...)
	}
	acquire := func(c Acquire) []byte { return EncodeCommand(c) }
	for name, tc := range map[string]struct {
		decode func([]byte) error
		b      []byte
		want   error
	}{
		"plain acquire":                {command, raw(0, 0, 0), nil},
		"known bit of an acquire":      {command, raw(acquireTry, 0, 0), nil},
		"unknown bit of an acquire":    {command, raw(acquireBits+1, 0, 0), errBits},
		"keys of none":                 {command, raw(acquireKeys, 0, 0, 0), errForm},
		"max waiters of 0":             {command, raw(acquireMaxWaiters, 0, 0, 0), errForm},
		"under none":                   {command, raw(acquireUnder, 0, 0, 0), errForm},
		"shared":                       {command, raw(0, specMode, byte(Shared), 0), nil},
		"exclusive with a bit":         {command, raw(0, specMode, 0, 0), errForm},
		"capacity of 0":                {command, raw(0, specOf, 0, 0), errForm},
		"priority of 0":                {command, raw(0, specPriority, 0, 0), errForm},
		"delay of 0":                   {command, raw(0, specDelay, 0, 0), errForm},
		"meta of no bytes":             {command, raw(0, specMeta, 0, 0), errForm},
		"token of 0":                   {command, raw(0, 0x80, 0x01, 0, 0), errForm},
		"bits not in their short form": {command, raw(0, 0x80, 0x00, 0), errVarint},
		"unknown bit of a spec":        {command, raw(0, 0x80, 0x02, 0, 0), errBits},
		"fade of 2":                    {command, append(EncodeCommand(SetValue{Rev: 1})[:20:20], 2, 0), errFlag},
		"as many keys as there may be": {command, acquire(Acquire{Keys: make([]string, MaxKeys)}), nil},
		"more keys":                    {command, acquire(Acquire{Keys: make([]string, MaxKeys+1)}), errLimit},
		"more keys than there are":     {command, raw(acquireKeys, 4, 0, 0), errShort},
		"under many":                   {command, acquire(Acquire{Under: make([]Token, MaxUnder)}), nil},
		"under more":                   {command, acquire(Acquire{Under: make([]Token, MaxUnder+1)}), errLimit},
		"upgrade under more":           {command, EncodeCommand(Upgrade{Under: make([]Token, MaxUnder+1)}), errLimit},
		"no holder":                    {outcome, append([]byte{1, outcomeHolder}, make([]byte, 20)...), errForm},
		"token 0 of an outcome":        {outcome, []byte{1, outcomeToken, 0}, errForm},
		"behind 0":                     {outcome, []byte{1, outcomeBehind, 0}, errForm},
		"no value":                     {outcome, []byte{1, outcomeValue, 0}, errForm},
		"no cycle":                     {outcome, []byte{1, 0x80, 0x02, 0}, errForm},
		"long cycle":                   {outcome, AppendOutcome(nil, Outcome{Cycle: make([]Link, MaxCycle)}), nil},
		"longer cycle":                 {outcome, AppendOutcome(nil, Outcome{Cycle: make([]Link, MaxCycle+1)}), errLimit},
		"waiters too big":              {outcome, []byte{1, outcomeWaiters, 0xff, 0xff, 0xff, 0xff, 0x7f}, errLimit},
		"trailing byte of an outcome":  {outcome, []byte{1, 0, 0}, errTrailing},
		"no session of an event":       {event, append([]byte{1, eventSession}, make([]byte, 16)...), errForm},
		"no key of an event":           {event, []byte{1, eventKey, 0}, errForm},
		"no reason":                    {event, []byte{1, 0x80, 0x01, 0}, errForm},
		"trailing byte of an event":    {event, []byte{1, 0, 0}, errTrailing},
	} {
		if err := tc.decode(tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestKeyAndKeysAreTwoThings: a request for one key is not one for a set of one,
// and a request for both, which Apply refuses, is decoded as that.
func TestKeyAndKeysAreTwoThings(t *testing.T) {
	for _, want := range []Acquire{{Key: "a"}, {Keys: []string{"a"}}, {Key: "a", Keys: []string{"a"}}, {Keys: []string{""}}, {}} {
		got, err := DecodeCommand(EncodeCommand(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v is decoded as %#v, %v", want, got, err)
		}
	}
	got, err := DecodeCommand(EncodeCommand(Acquire{Key: "a", Keys: []string{}, Under: []Token{}, Seen: []uint64{}}))
	if err != nil || !reflect.DeepEqual(got, Acquire{Key: "a"}) {
		t.Errorf("empty slices are decoded as %#v, %v", got, err)
	}
}

// TestUnknownCommandPoisonsNoOther: what a voter cannot read is refused in its
// place, and the commands beside it are applied.
func TestUnknownCommandPoisonsNoOther(t *testing.T) {
	a := session16("a")
	for name, alien := range map[string]Command{
		"nil":             nil,
		"pointer":         &Close{Session: a},
		"empty":           Unknown{},
		"unknown kind":    Unknown{Raw: "\xffabc"},
		"cut short":       Unknown{Raw: string(AppendCommand(nil, Close{Session: a})[:9])},
		"trailing":        Unknown{Raw: string(AppendCommand(nil, Close{Session: a})) + "x"},
		"long varint":     Unknown{Raw: "\x02\x80\x00"},
		"overflow":        Unknown{Raw: "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
		"too many seen":   Unknown{Raw: string(AppendCommand(nil, Release{Session: a, Seen: make([]uint64, MaxSeen+1)}))},
		"lying length":    Unknown{Raw: string(append(AppendCommand(nil, Close{Session: a})[:0:0], append([]byte{kindOpen}, append(a[:], 0xff, 0xff, 0x7f)...)...))},
		"flag of 2":       Unknown{Raw: string(append(EncodeCommand(SetValue{Rev: 1})[:20:20], 2, 0))},
		"waiters too big": Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k', acquireMaxWaiters, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0))},
		"second form":     Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 9, 1, 'k', acquireMaxWaiters, 0, 0, 0))},
		"later attribute": Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 9, 1, 'k', 0, 0x80, 0x02, 7, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			cmds, err := DecodeEntry(EncodeCommands([]Command{
				Open{Session: a, Client: "c", TTL: MinTTL},
				alien,
				Acquire{Session: a, Seq: 1, Key: "k"},
			}))
			if err != nil || len(cmds) != 3 {
				t.Fatalf("%d commands, %v", len(cmds), err)
			}
			s := founded()
			var codes []Code
			for _, c := range cmds {
				out, _ := s.Apply(c)
				codes = append(codes, out.Code)
			}
			if want := []Code{OK, BadCommand, Granted}; !reflect.DeepEqual(codes, want) {
				t.Errorf("codes %v, want %v", codes, want)
			}
			if !reflect.DeepEqual(must(DecodeEntry(EncodeCommands(cmds))), cmds) {
				t.Error("what was decoded does not survive another encoding")
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestBrokenEntriesAreRefused(t *testing.T) {
	good := EncodeCommands(everyCommand())
	for n := range good {
		if cmds, err := DecodeEntry(good[:n]); err == nil || cmds != nil {
			t.Errorf("an entry cut at %d of %d is accepted", n, len(good))
		}
	}
	if _, err := DecodeEntry(append(bytes.Clone(good), 0)); !errors.Is(err, errTrailing) {
		t.Errorf("trailing byte: %v", err)
	}
	if _, err := DecodeEntry(append([]byte{EntryVersion + 1}, good[1:]...)); err == nil {
		t.Error("another version is accepted")
	}
	if _, err := DecodeEntry(EncodeCommands(make([]Command, MaxCommands))); err != nil {
		t.Errorf("MaxCommands commands: %v", err)
	}
	if _, err := DecodeEntry(EncodeCommands(make([]Command, MaxCommands+1))); !errors.Is(err, errLimit) {
		t.Errorf("more than MaxCommands commands: %v", err)
	}
	if _, err := DecodeEntry([]byte{EntryVersion, 0xff, 0x07}); !errors.Is(err, errShort) {
		t.Errorf("1,023 commands claimed and none there: %v", err)
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(EncodeCommands(everyCommand()))
	f.Add(EncodeCommands(nil))
	f.Add([]byte{EntryVersion, 0xff, 0x07})
	f.Add([]byte{EntryVersion, 1, 3, kindLift, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var cmds []Command
		var err error
		if n := allocated(func() { cmds, err = DecodeEntry(b) }); n > 1<<16+256*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err != nil {
			return
		}
		if got := EncodeCommands(cmds); !bytes.Equal(got, b) {
			t.Fatalf("%x is encoded again as %x", b, got)
		}
		s := founded()
		for _, c := range cmds {
			s.Apply(c)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range everyCommand() {
		f.Add(EncodeCommand(c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if got := EncodeCommand(c); !bytes.Equal(got, b) {
			t.Fatalf("%x is encoded again as %x", b, got)
		}
	})
}

func FuzzDecodeAnswers(f *testing.F) {
	for _, o := range everyOutcome() {
		f.Add(AppendOutcome(nil, o))
	}
	for _, e := range everyEvent() {
		f.Add(AppendEvent(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := known(DecodeOutcome, outcomeBits)(b); err == nil {
			if got := AppendOutcome(nil, o); !bytes.Equal(got, b) {
				t.Fatalf("outcome %x is encoded again as %x", b, got)
			}
		}
		if e, err := known(DecodeEvent, eventBits)(b); err == nil {
			if got := AppendEvent(nil, e); !bytes.Equal(got, b) {
				t.Fatalf("event %x is encoded again as %x", b, got)
			}
		}
		_, _ = DecodeOutcome(b) // fields of a later version: no panic
		_, _ = DecodeEvent(b)
	})
}
