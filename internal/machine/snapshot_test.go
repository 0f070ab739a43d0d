package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// rich returns a table with something of everything in it.
func rich(tb testing.TB) *State {
	tb.Helper()
	s := New()
	a, b, c := session16("a"), session16("b"), session16("c")
	for _, cmd := range []Command{
		Found{Cluster: ClusterID{0xc1}, Floor: 1 << 52, TTL: 10_000},
		LeaderStart{Term: 3},
		Open{Session: a, Client: "billing", Node: "n1", TTL: 5_000, Meta: []byte("m")},
		Open{Session: b, Client: "reports", Node: "n2", TTL: 10_000},
		Open{Session: c, Client: "idle", TTL: 300},
		Acquire{Session: a, Seq: 1, Key: "invoices", Meta: []byte("first")},
		Acquire{Session: b, Seq: 1, Key: "invoices", Meta: []byte("second")},
		Acquire{Session: a, Seq: 2, Key: "orders", Try: true},
		Lift{Term: 3},
		Acquire{Session: a, Seq: 7, Key: "orders"},
		Acquire{Session: b, Seq: 2, Key: "orders", Try: true},
		Acquire{Session: b, Seq: 3, Key: "orders", Seen: []uint64{40}},
		Acquire{Session: a, Seq: 8, Key: "invoices", MaxWaiters: 1},
		Acquire{Session: b, Seq: 4, Key: "päyments"},
		Release{Session: a, Token: 1, Seen: []uint64{7}},
		Silence{Session: c, Term: 3},
		Bound{Term: 3, TTL: 20_000},
	} {
		s.Apply(cmd)
	}
	if err := s.Check(); err != nil {
		tb.Fatal(err)
	}
	if n := s.Counts(); n != (Counts{Keys: 3, Grants: 3, Waiters: 2, Sessions: 3, Refusals: 3}) {
		tb.Fatalf("not as rich as it should be: %+v", n)
	}
	return s
}

func image(s *State) []byte {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestImageIsGolden(t *testing.T) {
	want := golden(t, "snapshot-v1.hex", image(rich(t)))
	s, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(image(s), want) {
		t.Error("what was restored has another image")
	}
	golden(t, "snapshot-empty-v1.hex", image(New()))
}

// TestImageStaysWhileApplyGoesOn takes images between commands that change
// everything, and reads them at the end, and from other goroutines meanwhile.
func TestImageStaysWhileApplyGoesOn(t *testing.T) {
	s := rich(t)
	type taken struct {
		image *Image
		bytes []byte
	}
	var all []taken
	var readers sync.WaitGroup
	take := func() {
		want := image(s)
		i := s.Snapshot()
		all = append(all, taken{i, want})
		readers.Go(func() {
			for range 3 {
				var got bytes.Buffer
				n, err := i.WriteTo(&got)
				if err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("an image changed while it was written: %d bytes, %v", n, err)
				}
			}
		})
	}
	a, b := session16("a"), session16("b")
	seq := uint64(100)
	for round := range 20 {
		take()
		for i := range 10 {
			id := a
			if i%2 == 1 {
				id = b
			}
			seq++
			key := fmt.Sprint("key ", i/2)
			out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: key})
			switch {
			case out.Code == Granted && i%4 == 0:
				s.Apply(Acquire{Session: id, Seq: seq + 1000, Key: key, Try: true, Seen: []uint64{seq}})
			case out.Code == Granted:
				s.Apply(Release{Session: id, Token: out.Token, Seen: []uint64{seq + 1000}})
			case i%3 == 0:
				s.Apply(Withdraw{Session: id, Seq: seq})
			}
		}
		take()
		switch round {
		case 5:
			s.Apply(Release{Session: a, Token: 1 << 52})
		case 9:
			s.Apply(Silence{Session: b, Term: 3})
		case 12:
			s.Apply(Expire{Session: a, Term: 3})
		case 15:
			s.Apply(Close{Session: b})
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	for n, i := range all {
		var got bytes.Buffer
		if _, err := i.image.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), i.bytes) {
			t.Errorf("image %d has changed: %v", n, err)
		}
	}
}

// TestDamagedImagesAreRefused flips every bit, cuts at every byte, and appends.
func TestDamagedImagesAreRefused(t *testing.T) {
	good := image(rich(t))
	if _, err := Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := Restore(bytes.NewReader(good[:n])); err == nil {
			t.Errorf("an image cut at %d of %d is accepted", n, len(good))
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[n] ^= 1 << bit
			if _, err := Restore(bytes.NewReader(bad)); err == nil {
				t.Errorf("an image with bit %d of byte %d flipped is accepted", bit, n)
			}
		}
	}
	for name, bad := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"twice":         append(bytes.Clone(good), good...),
		"other version": append(append([]byte(magic), SnapshotVersion+1), good[len(magic)+1:]...),
		"not an image":  []byte(strings.Repeat("lock table", 10)),
		"no chunks":     append([]byte(magic), SnapshotVersion),
		"no header":     append(append([]byte(magic), SnapshotVersion), good[len(image(New())):]...),
	} {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestLyingSizesAllocateLittle: a few bytes that claim a gigabyte.
func TestLyingSizesAllocateLittle(t *testing.T) {
	bad := append([]byte(magic), SnapshotVersion, chunkHeader)
	bad = binary.LittleEndian.AppendUint32(bad, maxChunk)
	bad = append(bad, make([]byte, 100)...)
	if n := allocated(func() {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Error("accepted")
		}
	}); n > 1<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

// TestImpossibleImagesAreRefused: the checksums are right and the state is not.
func TestImpossibleImagesAreRefused(t *testing.T) {
	a := session16("a")
	key := func(s *State) *record { return s.edit("invoices") }
	for want, damage := range map[string]func(*State){
		"I2":  func(s *State) { s.last = 1 << 51 },
		"I3":  func(s *State) { s.sessions.del(session16("b")) },
		"I4":  func(s *State) { key(s).holder = grant{} },
		"I5":  func(s *State) { key(s).queue[0].since = s.commands + 1 },
		"I8":  func(s *State) { key(s).queue[0].seq = key(s).holder.seq; key(s).queue[0].session = a },
		"I9":  func(s *State) { s.lifted = false },
		"I10": func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).ttl = 1 },
		// Two at once, told apart by the rest of the text.
		"token 4503599627370496 granted after token 4503599627370496": func(s *State) { s.edit("orders").holder.token = 1 << 52 },
		"is not spent":     func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = nil },
		"element in a for": func(s *State) { m := s.keys.shards[hashKey("orders")].m; s.keys.shards[hashKey("orders")+1].m = m },
		"spent seqs":       func(s *State) { o, _ := s.sessions.get(a); s.editSession(o).spent = spans{{1, 2}, {3, 9}} },
		"refused with":     func(s *State) { s.refusals.set(request{a, 2}, &Outcome{Code: OK}) },
		"before founding":  func(s *State) { s.founded = false },
		"no cluster":       func(s *State) { s.cluster = ClusterID{} },
		"neither holder":   func(s *State) { s.keys.set("free", &record{version: 1}) },
		"bound of":         func(s *State) { s.bound = 1 },
		"counts":           func(s *State) { s.keys.n++ },
		"key \"\\xff\"":    func(s *State) { s.keys.set("\xff", &record{version: 1}) },
	} {
		s := rich(t)
		damage(s)
		_, err := Restore(bytes.NewReader(image(s)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if want != "element in a for" && s.Check() == nil {
			t.Errorf("%s: Check finds nothing", want)
		}
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.after {
		return f.after, io.ErrShortWrite
	}
	f.after -= len(b)
	return len(b), nil
}

func TestWriteErrorIsReturned(t *testing.T) {
	n, err := rich(t).Snapshot().WriteTo(&failing{after: 10})
	if n != 10 || err != io.ErrShortWrite {
		t.Errorf("%d, %v", n, err)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(image(New()))
	f.Add(image(founded()))
	f.Add(image(rich(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A fuzzer finds no checksums: they are put right for it.
		b = bytes.Clone(b)
		for rest := b[min(len(b), len(magic)+1):]; len(rest) >= 9; {
			size := int(binary.LittleEndian.Uint32(rest[1:]))
			if size > len(rest)-9 {
				break
			}
			binary.LittleEndian.PutUint32(rest[5+size:], checksum(rest[0], rest[5:5+size]))
			rest = rest[9+size:]
		}
		var s *State
		var err error
		if n := allocated(func() { s, err = Restore(bytes.NewReader(b)) }); n > 1<<20+1000*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if got := image(s); !bytes.Equal(got, b) {
			t.Fatalf("%x is written again as %x", b, got)
		}
		for _, c := range everyCommand() {
			s.Apply(c)
			if err := s.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
		}
	})
}
