package wire

import (
	"bytes"
	"io"
	"reflect"
	"runtime"
	"testing"
)

func TestFrameOverTheLimitIsRefused(t *testing.T) {
	keep := []byte("kept")
	got, err := AppendFrame(keep, Frame{Type: Read, ID: 1, Body: make([]byte, MaxFrame)})
	if err == nil || !bytes.Equal(got, keep) {
		t.Errorf("AppendFrame gave %d bytes and %v", len(got), err)
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0x94})); err == nil {
		t.Error("a frame of 4 GiB was accepted")
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0, 0, 0, 0})); err == nil {
		t.Error("an empty frame was accepted")
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0, 0, 0, 9, 0x94})); err != io.ErrUnexpectedEOF {
		t.Errorf("a cut frame: %v", err)
	}
}

// A length prefix costs no memory before the bytes of the frame arrive.
func TestFrameCostsNoMoreThanItsBytes(t *testing.T) {
	head := []byte{0, 0x0f, 0xff, 0xff, 0x94}
	if cost := cost(func() { ReadFrame(bytes.NewReader(head)) }); cost > 64<<10 {
		t.Errorf("a 5-byte stream cost %d bytes", cost)
	}
}

// cost returns the number of bytes that f allocates.
func cost(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A made-up next version has Types and Codes that this version does not know.
func TestFramesOfANextVersionAreRead(t *testing.T) {
	next := Frame{Type: 99, ID: 1, Code: 99, Body: []byte("body")}
	b, err := AppendFrame(nil, next)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFrame(bytes.NewReader(b)); err != nil || !reflect.DeepEqual(got, next) {
		t.Errorf("%+v became %+v, %v", next, got, err)
	}
	if next.Type.Asks() {
		t.Error("an unknown notice would be refused as a request without an ID")
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
