package judge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hashicorp/raft"
)

func requests() []any {
	at := time.Unix(0, 1_700_000_000_123_456_789)
	h := header("bob#2s")
	data := raft.EncodeConfiguration(config("A", "B"))
	return []any{
		&raft.AppendEntriesRequest{RPCHeader: h, Term: 5},
		&raft.AppendEntriesRequest{RPCHeader: h, Term: 5, PrevLogEntry: 7, PrevLogTerm: 4, LeaderCommitIndex: 6, Entries: []*raft.Log{
			{Index: 8, Term: 4, Type: raft.LogCommand, Data: []byte("first"), AppendedAt: at},
			{Index: 9, Term: 5, Type: raft.LogNoop, Data: []byte{}},
			{Index: 10, Term: 5, Type: raft.LogConfiguration, Data: data, AppendedAt: at},
		}},
		&raft.RequestVoteRequest{RPCHeader: h, Term: 5, LastLogIndex: 7, LastLogTerm: 4, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: h, Term: 5, LastLogIndex: 7, LastLogTerm: 4},
		&raft.InstallSnapshotRequest{RPCHeader: h, Leader: h.ID, SnapshotVersion: 1, Term: 5, LastLogIndex: 7, LastLogTerm: 4, Configuration: data, ConfigurationIndex: 3, Size: 1 << 20},
		&raft.TimeoutNowRequest{RPCHeader: h},
	}
}

func anyRoom(int) error { return nil }

func TestRequestsArriveAsTheyWere(t *testing.T) {
	var stream []byte
	for _, m := range requests() {
		var err error
		if stream, err = AppendRequest(stream, m); err != nil {
			t.Fatalf("%T: %v", m, err)
		}
	}
	r := iotest.OneByteReader(bytes.NewReader(stream))
	var buf []byte
	for _, want := range requests() {
		frame, err := ReadRequest(r, buf, anyRoom)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRequest(frame)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
		for i := range frame {
			flipped := bytes.Clone(frame)
			flipped[i] ^= 4
			if _, err := DecodeRequest(flipped); err == nil {
				t.Errorf("%T with a flipped bit at %d is taken", got, i)
			}
		}
		for cut := range frame {
			if _, err := DecodeRequest(sum(frame[:cut])); err == nil {
				t.Errorf("%T cut at %d is taken", got, cut)
			}
		}
		buf = frame
		for i := range buf {
			buf[i] = 0xee // the next frame overwrites this one
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T shares memory with its frame", got)
		}
	}
	if _, err := ReadRequest(r, buf, anyRoom); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Room is asked for a large frame once, before the rest of it is read, and the entries of a frame
// that nobody uses again are not copied.
func TestALargeFrameAsksForRoom(t *testing.T) {
	for _, size := range []int{Unasked - 100, Unasked + 100, 60 << 10, MaxEntry} {
		m := &raft.AppendEntriesRequest{RPCHeader: header("b#1"), Term: 5, Entries: []*raft.Log{{Index: 1, Term: 5, Data: make([]byte, size)}}}
		b, err := AppendRequest(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		n, r := len(b)-4, bytes.NewReader(b)
		asked := 0
		frame, err := ReadRequest(r, make([]byte, 0, 20<<10), func(of int) error {
			if asked++; of != n || r.Len() != n-Unasked {
				t.Errorf("room is asked for %d bytes of %d, %d are unread", of, n, r.Len())
			}
			return nil
		})
		if want := map[bool]int{true: 1}[n > Unasked]; err != nil || asked != want {
			t.Fatalf("%d bytes: room asked for %d times, want %d: %v", size, asked, want, err)
		}
		got, err := DecodeRequest(frame)
		if err != nil {
			t.Fatal(err)
		}
		data := got.(*raft.AppendEntriesRequest).Entries[0].Data
		frame[len(frame)-1] ^= 1
		if shares := data[len(data)-1] != 0; len(data) != size || shares != (n > Unasked) {
			t.Errorf("an entry of %d bytes arrives with %d, and is part of its frame: %v", size, len(data), shares)
		}
		if n <= Unasked {
			continue
		}
		full, left := errors.New("full"), bytes.NewReader(b)
		if _, err := ReadRequest(left, nil, func(int) error { return full }); err != full || left.Len() != n-Unasked {
			t.Errorf("without room: %v, %d bytes are unread", err, left.Len())
		}
	}
}

func TestAnswersArriveAsTheyWere(t *testing.T) {
	for _, want := range []any{
		&raft.AppendEntriesResponse{Term: 5, LastLog: 9, Success: true, NoRetryBackoff: true},
		&raft.RequestVoteResponse{Term: 5, Granted: true},
		&raft.RequestPreVoteResponse{Term: 5},
		&raft.InstallSnapshotResponse{Term: 5, Success: true},
		&raft.TimeoutNowResponse{},
	} {
		frame, err := ReadAnswer(bytes.NewReader(AppendAnswer(nil, want, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := DecodeAnswer(frame, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		other := any(&raft.TimeoutNowResponse{})
		if reflect.TypeOf(other) == reflect.TypeOf(want) {
			other = &raft.RequestVoteResponse{}
		}
		if DecodeAnswer(frame, other) == nil {
			t.Errorf("%T is taken for %T", want, other)
		}
	}
	for _, frame := range [][]byte{AppendAnswer(nil, nil, errors.New(strings.Repeat("long ", 1000))), AppendAnswer(nil, "no answer of raft's", nil)} {
		var refused *RefusedError
		if err := DecodeAnswer(frame[4:], &raft.RequestVoteResponse{}); !errors.As(err, &refused) {
			t.Errorf("a refusal arrives as %v", err)
		}
	}
}

// Requests that raft never makes have no encoding.
func TestForeignRequestsAreNotSent(t *testing.T) {
	other := header("b#1")
	other.Addr = []byte("10.0.0.1:7000")
	for what, m := range map[string]any{
		"another address":  &raft.TimeoutNowRequest{RPCHeader: other},
		"no sender":        &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		"a gap":            &raft.AppendEntriesRequest{RPCHeader: header("b#1"), Entries: []*raft.Log{{Index: 2}}},
		"extensions":       &raft.AppendEntriesRequest{RPCHeader: header("b#1"), Entries: []*raft.Log{{Index: 1, Extensions: []byte{1}}}},
		"a large entry":    &raft.AppendEntriesRequest{RPCHeader: header("b#1"), Entries: []*raft.Log{{Index: 1, Data: make([]byte, MaxEntry+1)}}},
		"another snapshot": &raft.InstallSnapshotRequest{RPCHeader: header("b#1")},
		"another type":     "hello",
	} {
		if b, err := AppendRequest([]byte("before"), m); err == nil || string(b) != "before" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
}

// A frame that claims much takes memory for the bytes that arrive, and no more.
func TestAClaimTakesNoMemory(t *testing.T) {
	for what, frame := range map[string][]byte{
		"4 GiB":           {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, version, 1},
		"4 MiB, 6 bytes":  binary.BigEndian.AppendUint32(nil, MaxFrame),
		"nothing":         {0, 0, 0, 0},
		"entries":         append([]byte{0, 0, 0, 16}, sum([]byte{0, 0, 0, 0, version, 1, 1, 'b', 5, 0, 0, 0, 64, 0, 0, 0})...),
		"a snapshot's ID": append([]byte{0, 0, 0, 12}, sum([]byte{0, 0, 0, 0, version, 4, 0xff, 0xff, 0xff, 0xff, 0x0f, 0})...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := ReadRequest(bytes.NewReader(frame), nil, anyRoom)
		if err == nil {
			_, err = DecodeRequest(b)
		}
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s is taken", what)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 {
			t.Errorf("%s took %d bytes", what, took)
		}
	}
}

// The entries of a message that fit are at least one, and the frame is within bounds.
func TestFit(t *testing.T) {
	for _, size := range []int{0, 1000, 60 << 10, 64 << 10, 70 << 10, 1 << 20, MaxEntry} {
		m := &raft.AppendEntriesRequest{RPCHeader: header("b#1"), Term: MaxNumber}
		for i := range 100 {
			m.Entries = append(m.Entries, &raft.Log{Index: 1 + uint64(i), Term: MaxNumber, Data: make([]byte, size)})
		}
		n := Fit(m.Entries)
		m.Entries = m.Entries[:n]
		b, err := AppendRequest(nil, m)
		if n < 1 || n > MaxEntries || err != nil || len(b)-4 > MaxFrame {
			t.Errorf("entries of %d bytes: %d fit, %d bytes, %v", size, n, len(b), err)
		}
		if n < MaxEntries && n < (MaxFrame-frameHead)/(size+entryHead) {
			t.Errorf("entries of %d bytes: only %d fit", size, n)
		}
	}
	if Fit(nil) != 0 {
		t.Error("no entries are more than none")
	}
}

// sum writes the right checksum into a frame without its length.
func sum(frame []byte) []byte {
	if len(frame) > 4 {
		frame = bytes.Clone(frame)
		binary.BigEndian.PutUint32(frame, crc32.Checksum(frame[4:], castagnoli))
	}
	return frame
}

// FuzzDecode: no bytes end the decoder, a request that decodes encodes to the same
// bytes, and what passes the judge is what raft's own decoder takes.
func FuzzDecode(f *testing.F) {
	for _, m := range requests() {
		b, _ := AppendRequest(nil, m)
		f.Add(b[4:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		frame = sum(frame)
		m, err := DecodeRequest(frame)
		if err != nil {
			return
		}
		again, err := AppendRequest(nil, m)
		if err == nil && !bytes.Equal(again[4:], frame) {
			t.Errorf("%x became %x", frame, again[4:])
		}
		for _, answer := range []any{&raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.TimeoutNowResponse{}} {
			_ = DecodeAnswer(frame, answer)
		}
	})
}

// FuzzJudge: no request ends the judge, and a configuration that passes is one that
// raft decodes.
func FuzzJudge(f *testing.F) {
	for _, m := range requests() {
		b, _ := AppendRequest(nil, m)
		f.Add(b[4:], "bob", true, uint64(5), "bob#2s")
	}
	f.Fuzz(func(t *testing.T, frame []byte, name string, isVoter bool, term uint64, leader string) {
		frame = sum(frame)
		m, err := DecodeRequest(frame)
		if err != nil {
			return
		}
		v := quiet()
		v.term, v.leader = min(term, MaxNumber), leader
		err = Judge(v, Sender{Name: name, Voter: isVoter}, m)
		if strings.HasPrefix(verdict(err), "neither") {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		if !isVoter {
			t.Error("passed without the voter's role")
		}
		switch m := m.(type) {
		case *raft.AppendEntriesRequest:
			for _, l := range m.Entries {
				if l.Type == raft.LogConfiguration {
					raft.DecodeConfiguration(l.Data)
				}
				if mine, ok := v.TermAt(l.Index); ok && m.Term >= v.term && l.Index <= v.commit && mine != l.Term {
					t.Errorf("entry %d of term %d replaces a committed one", l.Index, l.Term)
				}
			}
		case *raft.InstallSnapshotRequest:
			raft.DecodeConfiguration(m.Configuration)
		}
	})
}
