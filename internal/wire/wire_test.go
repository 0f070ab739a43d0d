package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// samples has one filled message of each kind of version 1.
var samples = []any{
	&Hint{Term: 3, Leader: "ann", Addr: "10.0.0.1:7000"},
	&AttachRequest{Sessions: []machine.SessionID{{1}, {2}}, Term: 3},
	&AttachAnswer{Term: 3, TTL: 10_000},
	&DepartRequest{Name: "ann", Boot: 7},
	&Query{Key: "k", Also: []string{"k/0", "k/1"}, Waiters: 10, Version: 5},
	&Answer{
		Status: machine.Status{
			Key:     "k",
			Holders: []machine.Grant{{Session: machine.SessionID{1}, Seq: 2, Token: 3, Client: "c", Node: "n", Spec: machine.Spec{Meta: "m"}}},
			Waiters: []machine.Waiter{{Session: machine.SessionID{2}, Seq: 1, Client: "d", Node: "o"}},
			Queue:   1, Version: 9,
		},
		Also: []Owner{{}, {Session: machine.SessionID{3}, Token: 4}}, Version: 11,
	},
	&ConfirmRequest{Term: 3, Voter: "ann#1"},
	&Founding{Cluster: machine.ClusterID{9}, Voters: []string{"ann#1", "ben#2"}, Floor: 1 << 50, TTL: 10_000},
	&PrepareRequest{Ballot: Ballot{Round: 1, Name: "ann", Boot: 7}, Size: 3, Voters: 3},
	&PrepareAnswer{
		Promised: Ballot{2, "ben", 8}, Accepted: Ballot{1, "ann", 7}, Value: &Founding{Cluster: machine.ClusterID{9}, Voters: []string{"ann#1"}, Floor: 1, TTL: 300},
		Raft: "ann#1", Durable: true, Token: 8, TTL: 300, Members: 3,
	},
	&AcceptRequest{Ballot: Ballot{1, "ann", 7}, Value: Founding{Cluster: machine.ClusterID{9}, Voters: []string{"ann#1"}, Floor: 1, TTL: 300}},
	&WhoAnswer{Name: "ann", Boot: 7, Founding: nil, Hint: Hint{Term: 1}},
	&InviteRequest{Term: 3},
	&InviteAnswer{Raft: "ann#1", Durable: true},
	&ProgressAnswer{Raft: "ann#1", Term: 3, Last: 100, Applied: 99},
	&RemovedNotice{Raft: "ann#1", Term: 3},
	&InConfigRequest{Raft: "ann#1"},
}

// samples2 has the messages that version 2 has added, or fields to.
var samples2 = []any{
	&Query{
		Key: "k", Also: []string{"k/0", "k/1"}, Waiters: 10, Value: true,
		Session: machine.SessionID{4}, Seq: 6, Version: 5,
	},
	&Answer{
		Status: filledStatus, Also: []Owner{{machine.SessionID{3}, 4}},
		Behind: 2, Waits: true, Version: 11,
	},
	&ScanQuery{Prefix: "k", From: "k/1", Limit: 256, Since: 7},
	&Scanned{Keys: []machine.Status{filledStatus}, More: true, Version: 9, Lost: true},
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

// What version 2 added is in samples2, or a golden file would not show a change.
func TestSamplesAreWhole(t *testing.T) {
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
	for _, m := range samples2 {
		check(reflect.TypeOf(m).Elem().Name(), reflect.ValueOf(m))
	}
}

// Every message of an earlier version is read for ever as it was written, and
// those of this one are written as they were.
func TestGoldenMessages(t *testing.T) {
	// What has grown since is written otherwise now, so version 1 is only read.
	golden(t, "messages-v1.txt", samples, false)
	golden(t, "messages-v2.txt", append(unchanged(), samples2...), true)
}

// unchanged are the messages of version 1 that are written as they were.
func unchanged() []any {
	return slices.DeleteFunc(slices.Clone(samples), func(m any) bool {
		return slices.ContainsFunc(samples2, func(o any) bool { return reflect.TypeOf(m) == reflect.TypeOf(o) })
	})
}

func golden(t *testing.T, name string, samples []any, written bool) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	frame, err := AppendFrame(nil, Frame{Type: Propose, ID: 300, Code: CodeOK, Body: []byte("body")})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range samples {
		out.WriteString(reflect.TypeOf(m).Elem().Name() + " " + hex.EncodeToString(Marshal(m)) + "\n")
	}
	out.WriteString("Frame " + hex.EncodeToString(frame) + "\n")
	if *rewrite && written {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); written && got != string(want) {
		t.Errorf("%s: the format has changed.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	if len(lines) != len(samples)+1 {
		t.Fatalf("%s: %d lines for %d messages", name, len(lines), len(samples))
	}
	for i, m := range samples {
		b, err := hex.DecodeString(strings.Fields(lines[i])[1])
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if err := Unmarshal(b, got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %T: %+v, %v; want %+v", name, m, got, err, m)
		}
	}
	if got := strings.Fields(lines[len(samples)])[1]; got != hex.EncodeToString(frame) {
		t.Errorf("%s: a frame is %x now, was %s", name, frame, got)
	}
}

// A later version may append fields: this one ignores them, and leaves zero
// what an earlier one did not send.
func TestMessagesMayGrow(t *testing.T) {
	type longer struct { // by name, not by place
		Term  uint64
		Voter string
		More  []string
	}
	var got ConfirmRequest
	if err := Unmarshal(Marshal(&longer{3, "ann#1", []string{"x", "y"}}), &got); err != nil || got != (ConfirmRequest{3, "ann#1"}) {
		t.Errorf("longer: %+v, %v", got, err)
	}
	type shorter struct{ Term uint64 }
	if err := Unmarshal(Marshal(&shorter{4}), &got); err != nil || got.Term != 4 {
		t.Errorf("shorter: %+v, %v", got, err)
	}
}

func TestFrameOverTheLimitIsRefused(t *testing.T) {
	keep := []byte("kept")
	got, err := AppendFrame(keep, Frame{Type: Read, ID: 1, Body: make([]byte, MaxFrame)})
	if err == nil || !bytes.Equal(got, keep) {
		t.Errorf("AppendFrame gave %d bytes and %v", len(got), err)
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0x94})); err == nil {
		t.Error("a frame of 4 GiB was begun")
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0, 0, 0, 0})); err == nil {
		t.Error("an empty frame was taken")
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0, 0, 0, 9, 0x94})); err != io.ErrUnexpectedEOF {
		t.Errorf("a cut frame: %v", err)
	}
}

// A claim costs no memory before its bytes are there.
func TestAFrameCostsWhatItHolds(t *testing.T) {
	head := []byte{0, 0x0f, 0xff, 0xff, 0x94}
	if cost := cost(func() { ReadFrame(bytes.NewReader(head)) }); cost > 64<<10 {
		t.Errorf("a 5-byte stream cost %d bytes", cost)
	}
}

// cost is how many bytes f allocates.
func cost(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Nor does what a message claims to hold.
func TestAMessageCostsWhatItHolds(t *testing.T) {
	elements := func(code byte, n uint32) []byte { // {"Keys": an array that claims n}
		b := append([]byte{0x81, 0xa4}, "Keys"...)
		return binary.BigEndian.AppendUint32(append(b, code), n)
	}
	nested := func(code byte, depth int) []byte {
		b := append([]byte{0x81, 0xa4}, "More"...)
		return append(append(b, bytes.Repeat([]byte{code}, depth)...), 0xc0)
	}
	for name, b := range map[string][]byte{
		"an array of 3 billion":      elements(0xdd, 3<<30),
		"an array of a million nils": append(elements(0xdd, 1<<20-16), bytes.Repeat([]byte{0xc0}, 1<<20-16)...),
		"a map of 3 billion":         elements(0xdf, 3<<30),
		"a string of 3 GiB":          elements(0xdb, 3<<30),
		"a million nested arrays":    nested(0x91, 1<<20-16),
		"an extension":               append(elements(0xd6, 0), 0),
		"a reserved code":            append(elements(0xc1, 0), 0),
		"a second message":           {0x80, 0x80},
		"nothing":                    {},
	} {
		var err error
		cost := cost(func() { err = Unmarshal(b, new(Scanned)) })
		if err == nil || cost > 64<<10 {
			t.Errorf("%s: %v, and cost %d bytes", name, err, cost)
		}
	}
	// The largest of each kind are no claims.
	for _, m := range []any{
		&AttachRequest{Sessions: make([]machine.SessionID, MaxAttach)},
		&Scanned{Keys: slices.Repeat([]machine.Status{filledStatus}, 1024)},
		&Hint{Leader: strings.Repeat("x", 70_000), Addr: strings.Repeat("x", 300)},
	} {
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if err := Unmarshal(Marshal(m), got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %v", m, err)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	good, _ := AppendFrame(nil, Frame{Type: Propose, ID: 300, Code: CodeOK, Body: []byte("body")})
	f.Add(good[4:])
	f.Add([]byte{0x94})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := DecodeFrame(b)
		if err != nil {
			return
		}
		again, err := AppendFrame(nil, frame)
		if err != nil {
			return
		}
		if f2, err := DecodeFrame(again[4:]); err != nil || !reflect.DeepEqual(f2, frame) {
			t.Fatalf("%+v became %+v, %v", frame, f2, err)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	all := append(slices.Clone(samples), samples2...)
	for i, m := range all {
		f.Add(uint8(i), Marshal(m))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m := reflect.New(reflect.TypeOf(all[int(kind)%len(all)]).Elem()).Interface()
		if Unmarshal(b, m) == nil {
			Marshal(m)
		}
	})
}
