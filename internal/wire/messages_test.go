package wire

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// samples has one message of each type, with no field zero.
var samples = []any{
	&Hint{Term: 3, Leader: "ann", Addr: "10.0.0.1:7000"},
	&AttachRequest{Sessions: []machine.SessionID{{1}, {2}}, Term: 3},
	&AttachAnswer{Term: 3, TTL: 10_000},
	&DepartRequest{Name: "ann", Boot: 7},
	&replica.Query{
		Key: "k", Also: []string{"k/0", "k/1"}, Waiters: 10, Value: true,
		Session: machine.SessionID{4}, Seq: 6, Version: 5,
	},
	&replica.Answer{
		Status: filledStatus, Also: []replica.Owner{{Session: machine.SessionID{3}, Token: 4}},
		Behind: 2, Waits: true, Version: 11,
	},
	&replica.Scan{Prefix: "k", From: "k/1", Limit: 256, Since: 7},
	&replica.Scanned{Keys: []machine.Status{filledStatus}, More: true, Version: 9, Lost: true},
	&ConfirmRequest{Term: 3, Voter: "ann#1"},
	&filledFounding,
	&PrepareRequest{Ballot: Ballot{1, "ann", 7}, Size: 3, Voters: 3},
	&PrepareAnswer{
		Promised: Ballot{2, "ben", 8}, Accepted: Ballot{1, "ann", 7}, Value: &filledFounding,
		Raft: "ann#1", Durable: true, Token: 8, TTL: 300, Members: 3,
	},
	&AcceptRequest{Ballot: Ballot{1, "ann", 7}, Value: filledFounding},
	&WhoAnswer{Name: "ann", Boot: 7, Founding: &filledFounding, Hint: Hint{Term: 3, Leader: "ann", Addr: "10.0.0.1:7000"}},
	&InviteRequest{Term: 3},
	&InviteAnswer{Raft: "ann#1", Durable: true},
	&ProgressAnswer{Raft: "ann#1", Term: 3, Last: 100, Applied: 99},
	&RemovedNotice{Raft: "ann#1", Term: 3},
	&InConfigRequest{Raft: "ann#1"},
}

var filledFounding = Founding{
	Cluster: machine.ClusterID{9}, Voters: []string{"ann#1", "ben#2"}, Floor: 1 << 50, TTL: 10_000,
}

var filledSpec = machine.Spec{
	Mode: machine.Permit, Of: 4, Tree: true, Priority: -1, Delay: 7, Conditional: true, IfToken: 10, Meta: "m",
}

var filledStatus = machine.Status{
	Key: "k",
	Holders: []machine.Grant{{
		Spec: filledSpec, Session: machine.SessionID{1}, Seq: 2, Token: 3, Client: "c", Node: "n",
		Keys: 5, At: 6, Asked: true, Broken: true, Delayed: true, SessionMeta: "s", Left: 8, Beats: 9,
	}},
	Held: 1,
	Waiters: []machine.Waiter{{
		Spec: filledSpec, Session: machine.SessionID{2}, Seq: 1, Client: "d", Node: "o",
		Keys: 5, Upgrade: true, Passed: 2, At: 6,
	}},
	Queue: 1, Last: 12, Value: "v", Unclean: true, Version: 9,
}

// A zero field would be missing from the golden file, and a change of its encoding
// would not be noticed.
func TestSamplesHaveNoZeroField(t *testing.T) {
	var check func(path string, v reflect.Value)
	check = func(path string, v reflect.Value) {
		switch {
		case v.IsZero():
			t.Errorf("%s is zero", path)
		case v.Kind() == reflect.Pointer:
			check(path, v.Elem())
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				check(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case v.Kind() == reflect.Slice:
			check(path+"[]", v.Index(0))
		}
	}
	for _, m := range samples {
		check(reflect.TypeOf(m).Elem().Name(), reflect.ValueOf(m))
	}
}

// The golden file has the bytes of every message and of a frame. The bytes written
// today must be equal, and the bytes in the file must decode to the samples.
//
// After an intended change before the release: go test ./internal/wire -rewrite.
// A released golden file never changes: see doc.go.
func TestMessagesAreWrittenAndReadLikeTheGoldenFile(t *testing.T) {
	path := filepath.Join("testdata", "golden", "messages-v1.txt")
	frame, err := AppendFrame(nil, Frame{Type: Propose, ID: 300, Code: CodeOK, Body: []byte("body")})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range samples {
		out.WriteString(reflect.TypeOf(m).Elem().Name() + " " + hex.EncodeToString(Marshal(m)) + "\n")
	}
	out.WriteString("Frame " + hex.EncodeToString(frame) + "\n")
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != string(want) {
		t.Errorf("%s: the format has changed.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	if len(lines) != len(samples)+1 {
		t.Fatalf("%s: %d lines for %d messages and a frame", path, len(lines), len(samples))
	}
	for i, m := range samples {
		b, err := hex.DecodeString(strings.Fields(lines[i])[1])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeLike(m, b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %+v, %v; want %+v", m, got, err, m)
		}
	}
}

// decodeLike decodes b into a new message of the type of m.
func decodeLike(m any, b []byte) (any, error) {
	got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
	err := Unmarshal(b, got)
	return got, err
}

// No Founding and no owner of a key are meaningful, and nothing else may appear in
// their place.
func TestZeroFieldsStayZero(t *testing.T) {
	messages := []any{
		&replica.Answer{Also: []replica.Owner{{}, {Session: machine.SessionID{3}, Token: 4}}, Version: 11},
	}
	for _, m := range samples {
		messages = append(messages, reflect.New(reflect.TypeOf(m).Elem()).Interface())
	}
	for _, m := range messages {
		if got, err := decodeLike(m, Marshal(m)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %+v, %v; want %+v", m, got, err, m)
		}
	}
}

// A made-up next version adds a field to every message, and to a struct inside a
// message. This version ignores the fields.
func TestAddedFieldsOfANextVersionAreIgnored(t *testing.T) {
	for _, m := range samples {
		next := Marshal(m)
		if next[0]&0xf0 != 0x80 || next[0] == 0x8f {
			t.Fatalf("%T begins with %#x, want a map of fewer than 15 fields", m, next[0])
		}
		next[0]++ // one field more
		next = append(append(next, 0xa4), "Next"...)
		next = append(next, 0x92, 0xa1, 'x', 0xa1, 'y') // an array of 2 strings
		if got, err := decodeLike(m, next); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T with a field more: %+v, %v; want %+v", m, got, err, m)
		}
	}
	type nextBallot struct {
		Priority int // before the known fields: the order has no meaning
		Round    uint64
		Name     string
		Boot     uint64
	}
	type nextPrepareRequest struct {
		Ballot nextBallot
		Size   int
		Voters int
		Reason string
	}
	want := &PrepareRequest{Ballot: Ballot{1, "ann", 7}, Size: 3, Voters: 3}
	got, err := decodeLike(want, Marshal(&nextPrepareRequest{nextBallot{9, 1, "ann", 7}, 3, 3, "x"}))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a field more inside: %+v, %v; want %+v", got, err, want)
	}
}

// The other direction: a next version reads a message that lacks the added fields.
func TestMissingFieldsAreZero(t *testing.T) {
	type earlier struct{ Term uint64 }
	var got ConfirmRequest
	if err := Unmarshal(Marshal(&earlier{4}), &got); err != nil || got != (ConfirmRequest{Term: 4}) {
		t.Errorf("without Voter: %+v, %v", got, err)
	}
	for _, m := range samples {
		zero := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if got, err := decodeLike(m, []byte{0x80}); err != nil || !reflect.DeepEqual(got, zero) {
			t.Errorf("%T without fields: %+v, %v", m, got, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for i, m := range samples {
		f.Add(uint8(i), Marshal(m))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		if m, err := decodeLike(samples[int(kind)%len(samples)], b); err == nil {
			Marshal(m)
		}
	})
}
