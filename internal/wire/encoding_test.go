package wire

import (
	"bytes"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

func TestAppendAndSizeAgreeWithMarshal(t *testing.T) {
	scanned := replica.Scanned{
		Keys: []machine.Status{
			{Key: "a", Held: 1, Holders: []machine.Grant{{Client: "c", Spec: machine.Spec{Meta: "m"}}}},
			{Key: "b", Queue: 1, Waiters: []machine.Waiter{{Client: "w"}}},
		},
		More: true, Version: 1 << 40,
	}
	want := Marshal(&scanned)
	if got := Append([]byte("head"), &scanned); !bytes.Equal(got[4:], want) || string(got[:4]) != "head" {
		t.Errorf("appended %x, want %x", got, want)
	}
	if n := Size(&scanned); n != len(want) {
		t.Errorf("size %d, want %d", n, len(want))
	}
}

func TestTheLargestBodyFillsAFrame(t *testing.T) {
	f := Frame{Type: 255, ID: 1<<64 - 1, Code: 255, Body: make([]byte, MaxBody)}
	b, err := AppendFrame(nil, f)
	if err != nil || len(b) != 4+MaxFrame {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	f.Body = append(f.Body, 0)
	if _, err := AppendFrame(nil, f); err == nil {
		t.Error("a larger body was taken")
	}
}
