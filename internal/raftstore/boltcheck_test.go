package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// sampleFile returns the bytes of a file in which entries were stored,
// overwritten and deleted, so that the file has pages of every kind.
func sampleFile(t testing.TB, n uint64) []byte {
	t.Helper()
	dir := t.TempDir()
	s, err := OpenDurable(dir, Options{BoltLog: true})
	must(t, err)
	must(t, s.SetUint64([]byte("CurrentTerm"), 3))
	must(t, s.SetUint64([]byte("LastVoteTerm"), 3))
	must(t, s.Set([]byte("LastVoteCand"), []byte("n1#1")))
	must(t, s.StoreLogs(entries(1, n, 1)))
	must(t, s.DeleteRange(1, n/4))
	must(t, s.DeleteRange(n/2, n))
	must(t, s.StoreLogs(entries(n/2, n, 2)))
	must(t, s.StoreLog(entry(n+1, 3, string(make([]byte, 20_000)))))
	must(t, s.Close())
	data, err := os.ReadFile(filepath.Join(dir, "raft.db"))
	must(t, err)
	return data
}

// dump opens a store with the given bytes and returns all its contents.
func dump(t testing.TB, data []byte) (string, error) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.WriteFile(filepath.Join(dir, "raft.db"), data, 0o600))
	s, err := OpenDurable(dir, Options{BoltLog: true})
	if err != nil {
		return "", err
	}
	defer s.Close()
	first, err := s.FirstIndex()
	must(t, err)
	last, err := s.LastIndex()
	must(t, err)
	term, err := s.GetUint64([]byte("CurrentTerm"))
	dump := fmt.Sprintln(first, last, term, err, readVote(t, s))
	for i := first; i <= last && first > 0; i++ {
		var log raft.Log
		must(t, s.GetLog(i, &log))
		log.AppendedAt = time.Time{} // the one thing without a checksum
		dump += fmt.Sprintln(log)
	}
	// Damage among the free pages would show in these writes.
	must(t, s.StoreLogs(entries(last+1, last+50, 4)))
	must(t, s.DeleteRange(first, last))
	return dump, nil
}

// OpenDurable either refuses a damaged file or finds the contents unchanged.
func TestDamageIsRefusedOrChangesNothing(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, n := range []uint64{6, 150} {
		whole := sampleFile(t, n)
		want, err := dump(t, whole)
		must(t, err)
		expect := func(damage string, data []byte, mustFail bool) {
			t.Helper()
			got, err := dump(t, data)
			switch {
			case err != nil && !errors.Is(err, ErrDamaged):
				t.Errorf("%d entries, %s: %v", n, damage, err)
			case err == nil && mustFail:
				t.Errorf("%d entries, %s: opened", n, damage)
			case err == nil && got != want:
				t.Errorf("%d entries, %s: opened with other contents", n, damage)
			}
		}
		used := usedBytes(t, whole)
		for _, size := range []int{1, 100, 4095, 4096, 8192, 8193, 12288, used / 2, used - 4096, used - 1} {
			expect(fmt.Sprintf("cut to %d bytes", size), whole[:size], true)
		}
		expect("cut behind the last page", whole[:used], false)

		zeros := bytes.Repeat([]byte{0}, len(whole))
		expect("zeros", zeros, true)
		random := rand.New(rand.NewPCG(1, n))
		for i := range zeros {
			zeros[i] = byte(random.Uint32())
		}
		expect("noise", zeros, true)

		flip := func(at, bit int) {
			data := bytes.Clone(whole)
			data[at] ^= 1 << bit
			expect(fmt.Sprintf("bit %d of byte %d (page %d, %d) flipped", bit, at, at/4096, at%4096), data, false)
		}
		for page := 2; page < used/4096; page++ { // headers and first elements
			for range testrounds.Rounds(1, 3) {
				flip(page*4096+random.IntN(48), random.IntN(8))
			}
		}
		for range testrounds.Rounds(20, 60) {
			flip(8192+random.IntN(used-8192), random.IntN(8))
		}
		for page := 2; page < used/4096; page++ {
			data := bytes.Clone(whole)
			clear(data[page*4096 : (page+1)*4096])
			expect(fmt.Sprintf("page %d lost", page), data, false)
			copy(data[page*4096:], data[2*4096:3*4096])
			expect(fmt.Sprintf("page %d is page 2", page), data, false)
			data = bytes.Clone(whole)
			count := data[page*4096+10:][:2]
			listed := binary.NativeEndian.Uint16(count)
			for _, lost := range []uint16{1, 2, 1 << 15} {
				binary.NativeEndian.PutUint16(count, listed-lost)
				expect(fmt.Sprintf("page %d lists %d less", page, lost), data, false)
			}
			clear(count)
			expect(fmt.Sprintf("page %d lists none", page), data, false)
		}
		data := bytes.Clone(whole)
		data[30] ^= 1
		data[4096+30] ^= 1
		expect("both metas", data, true)
	}
}

// The newest meta page is the last transaction: bbolt falls back on the older one,
// and a vote or an entry that this voter has acknowledged never was.
func TestADamagedMetaPageIsRefused(t *testing.T) {
	t.Parallel() // waits for the disk
	whole := sampleFile(t, 6)
	want, err := dump(t, whole)
	must(t, err)
	expect := func(damage string, data []byte) {
		t.Helper()
		switch got, err := dump(t, data); {
		case err == nil && got != want:
			t.Errorf("%s: opened with other contents", damage)
		case err == nil:
			t.Errorf("%s: opened", damage)
		case !errors.Is(err, ErrDamaged):
			t.Errorf("%s: %v", damage, err)
		}
	}
	for meta := range 2 {
		for at := range headerLen + metaLen {
			switch {
			case at >= 10 && at < headerLen: // count and overflow of a page without elements
				continue
			}
			data := bytes.Clone(whole)
			data[meta*4096+at] ^= 1 << (at % 8)
			expect(fmt.Sprintf("meta %d, byte %d", meta, at), data)
		}
		data := bytes.Clone(whole)
		clear(data[meta*4096:][:4096])
		expect(fmt.Sprintf("meta %d lost", meta), data)
		data = bytes.Clone(whole)
		copy(data[meta*4096:][:4096], data[(1-meta)*4096:])
		expect(fmt.Sprintf("meta %d is the other", meta), data)
	}

	// The disk acknowledged a write of a meta page and has lost it.
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	must(t, os.WriteFile(path, whole, 0o600))
	var older [2][]byte
	for range 2 {
		data, err := os.ReadFile(path)
		must(t, err)
		older[0], older[1] = older[1], data
		s, err := OpenDurable(dir, Options{BoltLog: true})
		must(t, err)
		must(t, s.SetUint64([]byte("CurrentTerm"), uint64(len(older[0])+7)))
		must(t, s.StoreLog(entry(8, 9, "later")))
		must(t, s.Close())
	}
	newest, err := os.ReadFile(path)
	must(t, err)
	for meta := range 2 {
		data := bytes.Clone(newest)
		copy(data[meta*4096:][:4096], older[0][meta*4096:][:4096])
		expect(fmt.Sprintf("meta %d of two transactions before", meta), data)
	}
}

// usedBytes returns the number of bytes that the newest state of a file may use.
func usedBytes(t testing.TB, data []byte) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raft.db")
	must(t, os.WriteFile(path, data, 0o600))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	var size int64
	must(t, db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }))
	return int(size)
}

// FuzzDamagedFile writes random bytes at random places into a file: the file is
// refused, or has the contents it had, and opening takes no more memory than the
// file is long.
func FuzzDamagedFile(f *testing.F) {
	whole := sampleFile(f, 200)
	want, err := dump(f, whole)
	must(f, err)
	f.Add(uint32(30), []byte{0xff}, uint32(0))
	f.Add(uint32(4096+64), []byte{1, 2, 3}, uint32(0))
	f.Add(uint32(8192), []byte{1}, uint32(0))
	f.Add(uint32(8192+8), []byte{1, 0, 255, 255}, uint32(0))
	f.Add(uint32(8192+10), []byte{0}, uint32(0))
	f.Add(uint32(16384), []byte{}, uint32(3))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := dump(t, data)
		runtime.ReadMemStats(&after)
		switch {
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Error(err)
		case err == nil && got != want:
			t.Error("opened with other contents")
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("took %d bytes", n)
		}
	})
}

// FuzzForgedMeta forges both meta pages, with good checksums: bbolt believes them.
func FuzzForgedMeta(f *testing.F) {
	whole := sampleFile(f, 6)
	f.Add(uint8(8), []byte{0}, uint8(8), []byte{0})                          // the page size
	f.Add(uint8(40), []byte{255, 255, 255}, uint8(40), []byte{255, 255})     // the number of pages
	f.Add(uint8(16), []byte{0xff, 0xff, 0, 1}, uint8(16), []byte{0xff, 255}) // the root
	f.Fuzz(func(t *testing.T, at0 uint8, patch0 []byte, at1 uint8, patch1 []byte) {
		data := bytes.Clone(whole)
		for meta, patch := range [][]byte{patch0, patch1} {
			body := data[meta*4096+headerLen:][:metaLen-8]
			copy(body[int([]uint8{at0, at1}[meta])%len(body):], patch)
			sum := fnv.New64a()
			sum.Write(body)
			binary.NativeEndian.PutUint64(data[meta*4096+headerLen+metaLen-8:], sum.Sum64())
		}
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		defer os.RemoveAll(dir)
		must(t, os.WriteFile(filepath.Join(dir, "raft.db"), data, 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := OpenDurable(dir, Options{BoltLog: true})
		runtime.ReadMemStats(&after)
		if err == nil {
			must(t, s.Close())
		} else if !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("took %d bytes", n)
		}
	})
}
