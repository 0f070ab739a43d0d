package judge

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

func answersOfAllKinds() []any {
	return []any{
		&raft.AppendEntriesResponse{Term: 5, LastLog: 9, Success: true},
		&raft.AppendEntriesResponse{Term: 1 << 40, LastLog: 300, NoRetryBackoff: true},
		&raft.RequestVoteResponse{Term: 5, Granted: true},
		&raft.RequestPreVoteResponse{Term: 5, Granted: true},
		&raft.InstallSnapshotResponse{Term: 5, Success: true},
		&raft.TimeoutNowResponse{},
	}
}

// TestGoldenMessages: members of two versions exchange these bytes during an upgrade, so the
// bytes of a version stay as they are. Another layout needs another number in version.
//
// After an intended change before the release: go test ./internal/judge -rewrite.
func TestGoldenMessages(t *testing.T) {
	var b strings.Builder
	line := func(m any, frame []byte) {
		fmt.Fprintf(&b, "%s %s\n", strings.TrimPrefix(fmt.Sprintf("%T", m), "*raft."), hex.EncodeToString(frame))
	}
	for _, m := range requests() {
		frame, err := AppendRequest(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		line(m, frame)
	}
	for _, m := range answersOfAllKinds() {
		line(m, AppendAnswer(nil, m, nil))
	}
	line(&RefusedError{}, AppendAnswer(nil, nil, errors.New("no voter")))
	path := filepath.Join("testdata", "golden", fmt.Sprintf("messages-v%d.txt", version))
	if *rewrite {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the bytes of a message have changed:\n%s\nwant\n%s", b.String(), want)
	}
}

// FuzzDecodeAnswer: no bytes end the decoder, and an answer that decodes encodes to the same
// bytes, so that no two frames say the same.
func FuzzDecodeAnswer(f *testing.F) {
	for i, m := range answersOfAllKinds() {
		f.Add(AppendAnswer(nil, m, nil)[4:], byte(i))
	}
	f.Add(AppendAnswer(nil, nil, errors.New("no voter"))[4:], byte(0))
	f.Fuzz(func(t *testing.T, frame []byte, kind byte) {
		frame = sum(frame)
		list := answersOfAllKinds()
		answer := reflect.New(reflect.TypeOf(list[int(kind)%len(list)]).Elem()).Interface()
		err := DecodeAnswer(frame, answer)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused):
			if again := AppendAnswer(nil, nil, errors.New(refused.Reason)); !bytes.Equal(again[4:], frame) {
				t.Errorf("%x became %x", frame, again[4:])
			}
		case err != nil:
		default:
			if again := AppendAnswer(nil, answer, nil); !bytes.Equal(again[4:], frame) {
				t.Errorf("%x became %x", frame, again[4:])
			}
		}
	})
}
