package port

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func sampleHello() Hello {
	return Hello{Kind: KindRaft, Cluster: "test", ClusterID: [16]byte{1, 2, 3}, From: Peer{"a", 0x0102030405060708}, To: Peer{"bcd", 9}}
}

// The layout is a contract with other versions: this test changes only
// together with the version.
func TestPreambleLayoutIsFixed(t *testing.T) {
	h := hex.EncodeToString(appendHello(nil, sampleHello()))
	want := "776d7431" + "01" + "01" + "01" + "03" + "9f86d081884c7d659a2feaa0c55ad015" + "01020300000000000000000000000000" + "0102030405060708" + "0000000000000009" + "61" + "626364"
	if h != want {
		t.Errorf("preamble\n%s, want\n%s", h, want)
	}
	a := hex.EncodeToString(appendAnswer(nil, answer{StatusRefused, hashCluster("test"), [16]byte{4}, Peer{"bcd", 9}, "ef"}))
	want = "776d7431" + "01" + "03" + "03" + "02" + "9f86d081884c7d659a2feaa0c55ad015" + "04000000000000000000000000000000" + "0000000000000009" + "626364" + "6566"
	if a != want {
		t.Errorf("answer\n%s, want\n%s", a, want)
	}
}

func TestPreambleIsReadExactly(t *testing.T) {
	for _, name := range []string{"b", "", strings.Repeat("n", maxName), "Gänseblümchen"} {
		h := sampleHello()
		h.To.Name = name
		wire := append(appendHello(nil, h), "raft's own"...)
		for _, r := range []io.Reader{bytes.NewReader(wire), iotest.OneByteReader(bytes.NewReader(wire)), iotest.DataErrReader(bytes.NewReader(wire))} {
			got, hash, err := readHello(r)
			got.Cluster = h.Cluster
			if err != nil || got != h || hash != hashCluster("test") {
				t.Fatalf("read %+v, %v; want %+v", got, err, h)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "raft's own" {
				t.Errorf("left %q to the connection's own protocol", rest)
			}
		}
	}
	for n := range len(appendHello(nil, sampleHello())) {
		if _, _, err := readHello(bytes.NewReader(appendHello(nil, sampleHello())[:n])); err == nil {
			t.Fatalf("read a preamble cut off at %d", n)
		}
	}
}

func FuzzPreamble(f *testing.F) {
	f.Add(appendHello(nil, sampleHello()))
	f.Add(appendAnswer(nil, answer{from: Peer{"a", 1}}))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("wmt1\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if h, hash, err := readHello(r); err == nil {
			again := appendHello(nil, h)
			copy(again[8:24], hash[:])
			if used := len(b) - r.Len(); !bytes.Equal(again, b[:used]) || used > maxHello {
				t.Errorf("read %d bytes %x, which encode as %x", used, b[:used], again)
			}
		} else if h != (Hello{}) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v beside %v", h, err)
		}
		r = bytes.NewReader(b)
		if a, err := readAnswer(r); err == nil {
			again := appendAnswer(nil, a)
			again[7] = b[7] // kept for later
			if used := len(b) - r.Len(); !bytes.Equal(again, b[:used]) || used > maxAnswer {
				t.Errorf("read %d bytes %x, which encode as %x", used, b[:used], again)
			}
		}
	})
}
