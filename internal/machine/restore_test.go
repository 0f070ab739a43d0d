package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

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
		// One bit of each byte; all of them in a full run.
		for i := range testrounds.Rounds(1, 8) {
			bad := bytes.Clone(good)
			bad[n] ^= 1 << ((n + i) % 8)
			if _, err := Restore(bytes.NewReader(bad)); err == nil {
				t.Errorf("an image with bit %d of byte %d flipped is accepted", (n+i)%8, n)
			}
		}
	}
	labelled := func(version byte, image []byte) []byte {
		return append(append([]byte(magic), version), image[len(magic)+1:]...)
	}
	for name, bad := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"twice":         append(bytes.Clone(good), good...),
		"later version": labelled(SnapshotVersion+1, good),
		"version 0":     labelled(0, good),
		"not an image":  []byte(strings.Repeat("lock table", 10)),
		"no chunks":     append([]byte(magic), SnapshotVersion),
		"no header":     append(append([]byte(magic), SnapshotVersion), good[len(image(New())):]...),
	} {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestLyingSizesAllocateLittle: a few bytes with a claim of a gigabyte.
func TestLyingSizesAllocateLittle(t *testing.T) {
	bad := append([]byte(magic), SnapshotVersion, chunkHeader)
	bad = binary.LittleEndian.AppendUint32(bad, maxPiece)
	bad = append(bad, make([]byte, 100)...)
	if n := allocated(func() {
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Error("accepted")
		}
	}); n > 1<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

func readRecord(c *coder) { codeRecord(c, new(record)) }

func readSet(c *coder) { codeSet(c, new(requestID), new([]string)) }

// TestLyingCountsAllocateLittle: a count is believed as far as there are bytes.
func TestLyingCountsAllocateLittle(t *testing.T) {
	many := binary.AppendUvarint(nil, MaxHolders)
	record := func(bits byte) []byte { return []byte{1, 'k', 1, bits} }
	waiter := append(append([]byte{1}, make([]byte, 16+4)...), waiterUnder)
	for name, tc := range map[string]struct {
		read func(*coder)
		b    []byte
	}{
		"holders": {readRecord, slices.Concat(record(recordHolders), many)},
		"waiters": {readRecord, slices.Concat(record(recordQueue), many)},
		"under":   {readRecord, slices.Concat(record(recordQueue), waiter, []byte{0xff, 1})},
		"set":     {readSet, slices.Concat(make([]byte, 16+1), []byte{0xff, 7})},
		"spent":   {func(c *coder) { codeSession(c, new(SessionID), new(*session)) }, slices.Concat(make([]byte, 16), []byte{1, 'c', 0, 1, 9, 0, 0, 0, 0, 0, 0}, many)},
	} {
		c := newDecoder(append(tc.b, 1, 2, 3))
		if n := allocated(func() { tc.read(&c) }); n > 10_000 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
		if !errors.Is(c.in.err, errShort) && !errors.Is(c.in.err, errLimit) {
			t.Errorf("%s: %v", name, c.in.err)
		}
	}
}

// TestStrangeElementsAreRefused: bytes that no append writes.
func TestStrangeElementsAreRefused(t *testing.T) {
	record := func(b ...byte) func() error {
		return func() error {
			c := newDecoder(append([]byte{1, 'k', 1}, b...))
			readRecord(&c)
			return c.in.finish()
		}
	}
	// grant and waiter are of session 0 and seq 1, from their bits on.
	grant := func(b ...byte) func() error {
		return record(append([]byte{recordHolders, 1, 1, 0}, b...)...)
	}
	held := func(bits byte, rest ...byte) func() error {
		return grant(append(append([]byte{bits}, make([]byte, 17)...), rest...)...)
	}
	waiter := func(b ...byte) func() error {
		return record(append(append([]byte{recordQueue, 1}, make([]byte, 20)...), b...)...)
	}
	set := func(keys ...string) func() error {
		return func() error {
			c := newDecoder(append(make([]byte, 16+1), appendStrings(nil, keys)...))
			readSet(&c)
			return c.in.finish()
		}
	}
	for name, tc := range map[string]struct {
		read func() error
		want string
	}{
		"plain record":        {record(0), ""},
		"known bits":          {record(recordFade | recordUnclean), ""},
		"unknown bit":         {record(0x80, 0x04), errBits.Error()},
		"capacity of 0":       {record(0x80, 0x01, 0), errForm.Error()},
		"last token of 0":     {record(recordLast, 0), errForm.Error()},
		"idle as 0":           {record(recordIdle, 0), errForm.Error()},
		"value of no bytes":   {record(recordValue, 0), errForm.Error()},
		"no holders":          {record(recordHolders, 0), errForm.Error()},
		"no waiters":          {record(recordQueue, 0), errForm.Error()},
		"plain grant":         {held(0, 0), ""},
		"flags of a grant":    {held(grantSet|grantUnseen|grantWaited|grantContended|grantAsked|grantBroken, 0), ""},
		"unknown bit of one":  {grant(append([]byte{0x80, 0x08}, make([]byte, 18)...)...), errBits.Error()},
		"rev of 0":            {held(grantRev, 0, 0), errForm.Error()},
		"upgraded from none":  {grant(append([]byte{0x80, 0x02}, make([]byte, 20)...)...), errForm.Error()},
		"plain waiter":        {waiter(0, 0), ""},
		"waiter of a set":     {waiter(waiterSet, 0), ""},
		"unknown bit of that": {waiter(waiterBits+1, 0, 0), errBits.Error()},
		"upgrade of 0":        {waiter(waiterUpgrade, 0, 0), errForm.Error()},
		"passed 0 times":      {waiter(waiterPassed, 0, 0), errForm.Error()},
		"under none":          {waiter(waiterUnder, 0, 0), errForm.Error()},
		"set":                 {set("a", "b"), ""},
		"empty set":           {set(), "set of no keys"},
		"set twice the same":  {set("a", "b", "b"), "keys of a set out of order"},
		"set in disorder":     {set("b", "a"), "keys of a set out of order"},
		"set too large":       {set(make([]string, MaxKeys+1)...), errLimit.Error()},
	} {
		switch err := tc.read(); {
		case err == nil && tc.want != "", err != nil && err.Error() != tc.want:
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// writable returns key's record for a change behind the back of all derived data.
func (s *State) writable(key string) *record {
	r := s.keys.clone(key, s.keys.get(key))
	r.extra = new(*r.extra)
	for i := range r.holders {
		r.holders[i].terms = new(*r.holders[i].terms)
	}
	return r
}

// TestImpossibleImagesAreRefused: the checksums are right and the state is not.
func TestImpossibleImagesAreRefused(t *testing.T) {
	a, d := session16("a"), session16("d")
	key := func(s *State) *record { return s.writable("invoices") }
	for want, damage := range map[string]func(*State){
		"I1":  func(s *State) { s.writable("docs/a").holders[0].Mode = Exclusive },
		"I2":  func(s *State) { s.last = 1 << 51 },
		"I3":  func(s *State) { s.sessions.del(session16("b")) },
		"I4":  func(s *State) { key(s).idle = 1 },
		"I5":  func(s *State) { key(s).queue[0].since = s.commands + 1 },
		"I6":  func(s *State) { key(s).queue[0].passed = MaxPassed + 1 },
		"I8":  func(s *State) { key(s).queue[0].seq = key(s).holders[0].seq; key(s).queue[0].session = a },
		"I9":  func(s *State) { s.lifted = false },
		"I15": func(s *State) { o := s.sessions.get(session16("b")); s.editSession(o).begun = true },
		"I14": func(s *State) { o := s.sessions.get(session16("b")); s.editSession(o).revoked = true },
		"I10": func(s *State) { o := s.sessions.get(a); s.editSession(o).ttl = 1 },
		// Several of one number, told apart by the rest of the text.
		"token 4503599627370496 granted after token 4503599627370496": func(s *State) { s.writable("orders").holders[0].token = 1 << 52 },
		"exceeds 9007199254740991": func(s *State) { // of a grant that was upgraded, and more than a request has room for
			s.last = 1 << 61
			for k, r := range s.keys.all {
				for i, g := range r.holders {
					if g.former != 0 {
						r = s.writable(k)
						r.holders[i].token, r.last = 1<<60+5, 1<<60+5
					}
				}
			}
		},
		"is not spent":     func(s *State) { o := s.sessions.get(a); s.editSession(o).spent = nil },
		"element in a for": func(s *State) { s.keys.shards[hashKey("orders")+1] = s.keys.shards[hashKey("orders")] },
		"spent seqs":       func(s *State) { o := s.sessions.get(a); s.editSession(o).spent = spans{{1, 2}, {3, 9}} },
		"answered with":    func(s *State) { s.answers.set(requestID{a, 2}, &answer{out: Outcome{Code: Queued}}) },
		"before founding":  func(s *State) { s.founded = false },
		"no cluster":       func(s *State) { s.cluster = ClusterID{} },
		"nothing is known": func(s *State) { s.keys.set("free", &record{version: 1, idle: 1, extra: &noExtra}) },
		"bound of":         func(s *State) { s.bound = 1 },
		"counts":           func(s *State) { s.keys.n++ },
		"key \"\\xff\"":    func(s *State) { s.keys.set("\xff", &record{version: 1, last: 1, idle: 1, extra: &noExtra}) },
		"under one number": func(s *State) { s.writable("rest 1").idle = s.writable("rest 2").idle },
		"not among its":    func(s *State) { s.sets.del(requestID{d, 6}) },
		"is not at":        func(s *State) { s.sets.set(requestID{d, 6}, []string{"set/1", "set/2", "set/3"}) },
		"set of no keys":   func(s *State) { s.sets.set(requestID{d, 6}, nil) },
		"keys of a set":    func(s *State) { s.sets.set(requestID{d, 6}, []string{"set/2", "set/1"}) },
		"and 4503599627370508 before": func(s *State) {
			s.last++
			s.writable("set/2").last = s.last
			s.writable("set/2").holders[0].token = s.last
		},
		"no delay":          func(s *State) { s.writable("slow").holders[0].Delay = 0 },
		"has no grant":      func(s *State) { s.writable("docs/a").queue[0].upgrade = 1 },
		"permits of 10001":  func(s *State) { s.writable("pool").capacity = MaxHolders + 1 },
		"permits of 0":      func(s *State) { s.writable("pool").capacity = 0 },
		"set false":         func(s *State) { s.writable("faded pool").fixed = false },
		"bad N":             func(s *State) { s.writable("pool").holders[0].N = 0 },
		"10001 permits of":  func(s *State) { s.writable("pool").holders[0].N = MaxHolders - 1 },
		"2 permits of 1 at": func(s *State) { s.writable("set pool").capacity = 1 },
		"bad Mode":          func(s *State) { s.writable("orders").holders[0].Mode = Permit + 1 },
		"above it": func(s *State) {
			s.last++
			s.writable("area").last = s.last
			s.writable("area").holders = []grant{{requestID: requestID{session16("b"), 40}, token: s.last, terms: &plainTerms}}
		},
		"and 1 before":     func(s *State) { s.writable("set/2").queue[0].order = 1 },
		"under 258 grants": func(s *State) { key(s).queue[0].under = make([]Token, MaxUnder+2) },
	} {
		s := rich(t)
		damage(s)
		_, err := Restore(bytes.NewReader(image(s)))
		if want == "under 258 grants" {
			want = errLimit.Error() // which is found before
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if want != "element in a for" && s.Check() == nil {
			t.Errorf("%s: Check finds nothing", want)
		}
	}
}

// resum puts the checksums right of all chunks in an image.
func resum(b []byte) []byte {
	for rest := b[min(len(b), len(magic)+1):]; len(rest) >= 9; {
		size := int(binary.LittleEndian.Uint32(rest[1:]))
		if size > len(rest)-9 {
			break
		}
		binary.LittleEndian.PutUint32(rest[5+size:], checksum(rest[0], rest[5:5+size]))
		rest = rest[9+size:]
	}
	return b
}

func FuzzRestore(f *testing.F) {
	f.Add(image(New()))
	f.Add(image(founded()))
	f.Add(image(rich(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = resum(bytes.Clone(b)) // a fuzzer finds no checksums
		var s *State
		var err error
		if n := allocated(func() { s, err = Restore(bytes.NewReader(b)) }); n > 1<<20+1000*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err != nil {
			return
		}
		got := image(s)
		if !bytes.Equal(got, b) {
			t.Fatalf("%x is written again as %x", b, got)
		}
		again, err := Restore(bytes.NewReader(got))
		if err != nil || !bytes.Equal(image(again), got) {
			t.Fatalf("%x, written as %x, is not restored from that: %v", b, got, err)
		}
		if (checker{s}).checkWaits() != nil {
			return // Restore takes that from the image
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for _, c := range everyCommand() {
			s.Apply(c)
			if err := s.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
		}
	})
}
