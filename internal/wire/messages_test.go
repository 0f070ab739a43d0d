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
	&filledHint,
	&FindRequest{Above: 3, Wait: 1000, Lost: true},
	&AttachRequest{Keys: []machine.SessionKey{{1}, {2}}, New: []machine.SessionKey{{4}}, Term: 3,
		Proof: &KeyProof{Signer: []byte{1, 2}, Signature: []byte{3}}, Dir: &DirProof{Key: []byte{4}, Signature: []byte{5, 6}}},
	&AttachAnswer{Term: 3, TTL: 10_000, Members: 300, Voters: []string{"10.0.0.1:7000"}},
	&VoterSet{Term: 3, Index: 9, Wanted: 5, Voters: []VoterState{{Raft: "ann#1", Addr: "10.0.0.1:7000", Zone: "east", Present: true, Reached: true, Current: true, Leaving: true}}},
	&DepartRequest{Name: "ann", Boot: 7},
	&replica.Query{
		Key: "k", Waiters: 10, Value: true,
		Session: machine.SessionID{4}, Seq: 6, Group: "g", Since: 7, Version: 5,
	},
	&replica.Answer{
		Status: filledStatus, Behind: 2, Waits: true, Version: 11,
		Group: &machine.GroupStatus{
			Shards: 64, Next: 128, Version: 10, Settled: true, Drain: 5_000, Grace: 6_000, MaxMoves: 7, Orphans: 8,
			Callers: []machine.Caller{{
				ID: 9, Session: machine.SessionID{5}, Seq: 11, Client: "c", Node: "n", Weight: 100, Succeeds: "d", Absent: 12,
				Next: true, Assigned: 13,
			}},
		},
		Since: 14, Gone: []uint32{15},
	},
	&replica.Scan{Prefix: "k", From: "k/1", Limit: 256, Since: 7, Shards: true},
	&replica.Scanned{
		Keys: []machine.Status{filledStatus}, More: true, Version: 9, Lost: true,
		Shards: []byte{1, 1, 2}, Owners: []replica.ShardOwner{{Session: machine.SessionID{1}, Client: "c", Node: "n", SessionMeta: "m"}}, Last: "k/1",
	},
	&replica.ValuesQuery{Prefix: "k", From: "k/1", Limit: 256},
	&replica.ValuesPage{Values: []machine.KeyValue{{Key: "k/1", Value: "v\xff", Token: 1 << 52, Unclean: true}}, More: true},
	&replica.SessionsQuery{From: machine.SessionRef{1, 2}, Limit: 256, Gone: true},
	&replica.SessionsPage{
		Sessions: []replica.ListedSession{{
			Ref: machine.SessionRef{3}, Client: "c", Node: "n", TTL: 10_000, Opened: 1_700_000_000_000, Left: 9_000, Ending: true,
			Keys: 2, Waits: 3, Meta: "m",
		}},
		More: true, NextFrom: machine.SessionRef{4},
	},
	&ConfirmRequest{Term: 3, Voter: "ann#1"},
	&filledFounding,
	&PrepareRequest{
		Ballot: Ballot{1, "ann", 7}, Size: 3, Founders: []string{"ann"}, Voters: 3, TTL: 300, Complete: true, Floor: 9,
		Word: WordComplete, Group: []GroupMember{{"ann", 7, "10.0.0.1:7000"}},
	},
	&PrepareAnswer{
		Promised: Ballot{2, "ben", 8}, Accepted: Ballot{1, "ann", 7}, Value: &filledFounding, Decided: &filledFounding,
		Raft: "ann#1", Durable: true, Thin: true, Token: 8, TTL: 300, Members: 3, Differs: "d", Refused: "r", Claimed: true,
	},
	&AcceptRequest{
		Ballot: Ballot{1, "ann", 7}, Value: filledFounding,
		Word: WordComplete, Group: []GroupMember{{"ann", 7, "10.0.0.1:7000"}},
	},
	&AcceptAnswer{Refused: "r"},
	&VouchRequest{Cluster: machine.ClusterID{9}},
	&VouchAnswer{Founding: filledFounding, Leader: "ann", Term: 3, Voters: []VoterAt{{"ann#1", "10.0.0.1:7000"}}},
	&AttestRequest{Cluster: machine.ClusterID{9}, Voter: "ann#1", Leader: "ann", Term: 3},
	&RetireRequest{Word: WordOperator, Cluster: machine.ClusterID{9}},
	&RetireAnswer{Raft: "ann#1", Token: 8, TokenAge: 9, TTL: 300, Voter: true, LogTerm: 3, LogIndex: 100, Refused: "r"},
	&WhoAnswer{Name: "ann", Boot: 7, Addr: "10.0.0.1:7000", Founding: &filledFounding, Accepted: &filledFounding, Hint: filledHint, Ending: true},
	&InviteRequest{Term: 3},
	&InviteAnswer{Raft: "ann#1", Durable: true},
	&ProgressAnswer{Raft: "ann#1", Term: 3, Last: 100, Applied: 99, Leaves: true},
	&RemovedNotice{Raft: "ann#1", Term: 3},
	&InConfigRequest{Raft: "ann#1"},
	&LineageRequest{From: filledLineage},
	&LineageAnswer{From: filledLineage},
	&GoodbyeNotice{Name: "ann", Boot: 4},
	&StandRequest{Voter: "ann#1", Candidate: "ben#2", Leader: "cat#3", Boot: 7, Term: 3, LastTerm: 2, LastIndex: 100},
	&StandAnswer{LastTerm: 2, LastIndex: 99},
	&FollowsRequest{Voter: "ann#1", Leader: "ben#2", Term: 3},
	&FollowsAnswer{Term: 3, Leader: "ben#2", Index: 9, Servers: []FollowsServer{{ID: "ann#1", Voter: true}}},
}

var filledLineage = LineageOf{
	Name: "ann", Boot: 7, Addr: "10.0.0.1:7000", Founding: &filledFounding, Granted: true, Votes: true,
}

var filledHint = Hint{
	Term: 3, Leader: "ann", Addr: "10.0.0.1:7000", Votes: true, Voters: []string{"10.0.0.1:7000"},
}

var filledFounding = Founding{
	Cluster: machine.ClusterID{9}, Voters: []string{"ann#1", "ben#2"}, Floor: 1 << 50, TTL: 10_000,
	Predecessors: []machine.ClusterID{{8}},
}

var filledSpec = machine.Spec{
	Mode: machine.Permit, N: 3, Of: 4, Tree: true, Priority: -1, Delay: 7, Conditional: true, IfToken: 10, Meta: "m", Block: 11,
}

var filledStatus = machine.Status{
	Key: "k",
	Holders: []machine.Grant{{
		Spec: filledSpec, Session: machine.SessionID{1}, Seq: 2, Token: 3, Client: "c", Node: "n",
		Keys: 5, At: 6, Asked: true, Broken: true, Delayed: true, Ending: true, SessionMeta: "s", Left: 8, Beats: 9,
	}},
	Held: 1,
	Waiters: []machine.Waiter{{
		Spec: filledSpec, Session: machine.SessionID{2}, Seq: 1, Client: "d", Node: "o",
		Keys: 5, Upgrade: true, Passed: 2, Behind: 3, At: 6,
	}},
	Queue: 1, Last: 12, Value: "v", Unclean: true, Version: 9, Permits: 3, Of: 4, Fixed: true,
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

// No Founding is meaningful, and nothing else may appear in its place.
func TestZeroFieldsStayZero(t *testing.T) {
	messages := []any{&replica.Answer{Version: 11}}
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
