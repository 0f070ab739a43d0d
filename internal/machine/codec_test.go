package machine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// everyCommand has each kind, with every field set to something of its own.
func everyCommand() []Command {
	a, b := session16("a"), session16("b")
	return []Command{
		Found{Cluster: ClusterID{0xc1}, Floor: 1 << 52, TTL: 10_000},
		LeaderStart{Term: 3},
		Lift{Term: 4},
		Bound{Term: 5, TTL: 20_000},
		Open{Session: a, Client: "billing", Node: "n1", TTL: 5_000, Meta: []byte("m")},
		Acquire{Session: a, Seq: 6, Key: "invoices", Mode: 7, Try: true, MaxWaiters: 8, Meta: []byte("é"), Seen: []uint64{1, 1 << 63}},
		Withdraw{Session: b, Seq: 9, Seen: []uint64{2}},
		Release{Session: b, Token: MaxToken, Seen: []uint64{3, 4}},
		Silence{Session: a, Term: 10},
		Hear{Session: a, Term: 11},
		Expire{Session: a, Term: 12},
		Close{Session: a},
		Acquire{Session: b, Seq: 1, Key: "k"},
		Unknown{Raw: "\xf0future"},
	}
}

func everyOutcome() []Outcome {
	return []Outcome{
		{Code: OK},
		{Code: Granted, Token: MaxToken},
		{Code: Queued, Behind: 1<<32 - 1},
		{Code: Held, Holder: Holder{Session: session16("a"), Client: "billing", Node: "n1", Token: 7}},
		{Code: BadCommand, Field: "Key", Limit: MaxKey},
		{Code: WrongTerm, Limit: 1<<64 - 1},
	}
}

func everyEvent() []Event {
	a := session16("a")
	return []Event{
		{Kind: EventGranted, Session: a, Seq: 3, Key: "invoices", Token: 7},
		{Kind: EventLost, Session: a, Seq: 3, Key: "invoices", Token: 7, Reason: Expired},
		{Kind: EventEnded, Session: a, Reason: Closed},
		{Kind: EventChanged, Key: "invoices"},
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
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s: the encoding has changed; old logs and other voters have\n%x\nnot\n%x", file, want, b)
	}
	return want
}

func TestEntryEncodingIsGolden(t *testing.T) {
	want := golden(t, "entry-v1.hex", EncodeEntry(everyCommand()))
	got, err := DecodeEntry(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, everyCommand()) {
		t.Errorf("decoded\n%#v, want\n%#v", got, everyCommand())
	}
}

func TestAnswerEncodingsAreGolden(t *testing.T) {
	var b []byte
	for _, o := range everyOutcome() {
		b = AppendOutcome(b, o)
	}
	for _, e := range everyEvent() {
		b = AppendEvent(b, e)
	}
	rest := golden(t, "answers-v1.hex", b)
	for _, want := range everyOutcome() {
		var got Outcome
		var err error
		if got, rest, err = DecodeOutcome(rest); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range everyEvent() {
		var got Event
		var err error
		if got, rest, err = DecodeEvent(rest); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes left over", len(rest))
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
		"flag of 2":       Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k', 0, 2, 0, 0, 0))},
		"waiters too big": Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k', 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			cmds, err := DecodeEntry(EncodeEntry([]Command{
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
			if !reflect.DeepEqual(must(DecodeEntry(EncodeEntry(cmds))), cmds) {
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
	good := EncodeEntry(everyCommand())
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
	if _, err := DecodeEntry(EncodeEntry(make([]Command, MaxCommands))); err != nil {
		t.Errorf("MaxCommands commands: %v", err)
	}
	if _, err := DecodeEntry(EncodeEntry(make([]Command, MaxCommands+1))); !errors.Is(err, errLimit) {
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
	f.Add(EncodeEntry(everyCommand()))
	f.Add(EncodeEntry(nil))
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
		if got := EncodeEntry(cmds); !bytes.Equal(got, b) {
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
		f.Add(AppendCommand(nil, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if got := append(AppendCommand(nil, c), rest...); !bytes.Equal(got, b) {
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
		if o, rest, err := DecodeOutcome(b); err == nil {
			if got := append(AppendOutcome(nil, o), rest...); !bytes.Equal(got, b) {
				t.Fatalf("outcome %x is encoded again as %x", b, got)
			}
		}
		if e, rest, err := DecodeEvent(b); err == nil {
			if got := append(AppendEvent(nil, e), rest...); !bytes.Equal(got, b) {
				t.Fatalf("event %x is encoded again as %x", b, got)
			}
		}
	})
}
