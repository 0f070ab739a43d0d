package identity

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/files"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// sample is a record with every field set.
func sample() Record {
	founding := &wire.Founding{Cluster: machine.ClusterID{1}, Voters: []string{"ann#7", "ben#8"}, Floor: 1, TTL: 1000}
	return Record{
		Name: "ann", Cluster: "c", Founding: founding, Generation: 7, Stored: true,
		Promise: Promise{Promised: wire.Ballot{Round: 9, Name: "ben", Boot: 3}, Accepted: wire.Ballot{Round: 8, Name: "ann", Boot: 2}, Value: founding},
		Shunned: []machine.ClusterID{{2}}, Peers: []string{"10.0.0.1:7000", "10.0.0.2:7000"}, Token: 1 << 50,
		Retired: Retirement{Cluster: [16]byte{3}, Voted: true, Term: 4, Index: 5, Voters: []string{"ann#6"}},
		Boot:    11, Addr: "10.0.0.3:7000", Host: "a host", Past: []Life{{Boot: 10, Addr: "10.0.0.3:7000"}},
		Key: bytes.Repeat([]byte{12}, 32),
	}
}

// store writes the sample into a new directory and returns its file.
func store(t testing.TB) (dir, path string, whole []byte) {
	t.Helper()
	dir = t.TempDir()
	s, err := Open(dir, "ann", "c", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(r *Record) { *r = sample() }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, files.Identity)
	if whole, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return dir, path, whole
}

func TestEveryFieldIsStored(t *testing.T) {
	dir, _, _ := store(t)
	s := open(t, dir, "ann", "c", true)
	defer s.Close()
	if got := s.Get(); !reflect.DeepEqual(got, sample()) {
		t.Errorf("stored %+v, read %+v", sample(), got)
	}
}

func TestEachFlippedBitIsFound(t *testing.T) {
	_, _, whole := store(t)
	for at := range whole {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[at] ^= 1 << bit
			if _, err := decode(data); !errors.Is(err, ErrDamaged) {
				t.Fatalf("bit %d of byte %d of %d flipped: %v", bit, at, len(whole), err)
			}
		}
	}
	for size := range whole {
		if _, err := decode(whole[:size]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", size, err)
		}
	}
	for _, more := range [][]byte{{0}, whole} {
		if _, err := decode(append(bytes.Clone(whole), more...)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes more: %v", len(more), err)
		}
	}
}

// A damaged record is refused with the way out, and every file stays as it is.
func TestADamagedRecordIsRefusedAndKept(t *testing.T) {
	dir, path, whole := store(t)
	for damage, data := range map[string][]byte{
		"a flipped bit":   append(bytes.Clone(whole[:40]), append([]byte{whole[40] ^ 4}, whole[41:]...)...),
		"cut":             whole[:len(whole)/2],
		"empty":           {},
		"zeros":           make([]byte, len(whole)),
		"another program": []byte("SQLite format 3\x00 and enough bytes behind it to be a record of some length"),
		"huge":            make([]byte, maxFile+5),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, "ann", "c", true)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "move Dir away") {
			t.Errorf("%s: %v", damage, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, data) {
			t.Errorf("%s: the file has changed: %v", damage, err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, "ann", "c", true).Close() // every refusal has given the lock back
}

func TestARecordOfALaterVersionIsNotCalledDamaged(t *testing.T) {
	later := seal(wire.Marshal(&Record{Name: "ann"}), version+1)
	if _, err := decode(later); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v", err)
	}
}

// A crash in the middle of an update leaves the new file beside the old one.
func TestAnUpdateCutShortLeavesTheRecord(t *testing.T) {
	dir, path, whole := store(t)
	if err := os.WriteFile(path+".new", whole[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, "ann", "c", true)
	if got := s.Get(); !reflect.DeepEqual(got, sample()) {
		t.Errorf("read %+v", got)
	}
	if err := s.Update(func(r *Record) { r.Token++ }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Lstat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half file stays: %v", err)
	}
	s = open(t, dir, "ann", "c", true)
	defer s.Close()
	if got := s.Get().Token; got != sample().Token+1 {
		t.Errorf("token %d", got)
	}
}

func TestAClosedStoreTakesNoUpdate(t *testing.T) {
	s := open(t, t.TempDir(), "ann", "c", true)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Another process may have the directory by now.
	if err := s.Update(func(r *Record) { r.Token = 7 }); err == nil || s.Get().Token != 0 {
		t.Errorf("updated: %v", err)
	}
}

func TestALinkForTheRecordIsNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right of their own")
	}
	dir, path, whole := store(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.WriteFile(elsewhere, whole, 0o600), os.Remove(path), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "ann", "c", true); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("opened: %v", err)
	}
}

func FuzzDecodeIdentity(f *testing.F) {
	rec := sample()
	whole := encode(&rec)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(encode(&Record{}))
	f.Add(seal(wire.Marshal(&rec), version+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(encode(&rec))
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Errorf("%+v became %+v: %v", rec, again, err)
		}
	})
}

// FuzzIdentityBody decodes records under a good checksum: the decoder neither
// panics nor takes memory beyond a multiple of its input.
func FuzzIdentityBody(f *testing.F) {
	rec := sample()
	f.Add(wire.Marshal(&rec))
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdd, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxFile-minLength {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rec, err := decode(seal(body, version))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+200*uint64(len(body)) {
			t.Errorf("%d bytes took %d", len(body), n)
		}
		if err == nil && len(encode(&rec)) > maxFile {
			t.Logf("a record of %d bytes grew beyond the limit", len(body))
		}
	})
}

// FuzzDamagedIdentity patches and cuts the whole file.
func FuzzDamagedIdentity(f *testing.F) {
	rec := sample()
	whole := encode(&rec)
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(20), []byte{0xff, 0xff, 0xff}, uint32(9))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
		got, err := decode(data)
		switch {
		case bytes.Equal(data, whole):
			if err != nil || !reflect.DeepEqual(got, rec) {
				t.Errorf("unchanged: %v", err)
			}
		case !errors.Is(err, ErrDamaged):
			t.Errorf("changed, and read: %v", err)
		}
	})
}
