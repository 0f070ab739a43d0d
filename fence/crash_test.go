package fence

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// stepDisk is a disk that fails at one chosen step and can lose power. The files on
// the host are its cache. After a power loss the synced content is left, and of the rest
// as much as the power loss has let through.
type stepDisk struct {
	hostDisk
	path string // the mark file

	step   int   // number of steps so far
	at     int   // the number of the faulty step
	fault  fault // the fault at that step
	writes int   // number of writes to the mark file
	syncs  int   // number of syncs of the mark file

	named  bool   // the name of the mark file is durable
	synced []byte // the synced content of the mark file
	temp   []byte // the synced content of the temporary file
}

type fault int

const (
	none         fault = iota
	failsBefore        // the step returns an error and has no effect
	failsAfter         // the step returns an error although it took effect
	killedBefore       // the process dies before the step takes effect
	killedAfter        // the process dies after the step took effect
)

func (f fault) String() string {
	return [...]string{"none", "failsBefore", "failsAfter", "killedBefore", "killedAfter"}[f]
}

var errDisk = errors.New("disk says no")

// killed is the panic value of a fault that kills the process.
type killed struct{}

// do runs act as the next step, with the fault if this step is the faulty step.
func (d *stepDisk) do(act func() error) error {
	d.step++
	if d.step != d.at {
		return act()
	}
	switch d.fault {
	case failsAfter, killedAfter:
		if err := act(); err != nil {
			return err
		}
	}
	switch d.fault {
	case killedBefore, killedAfter:
		panic(killed{})
	case failsBefore, failsAfter:
		return errDisk
	}
	return act()
}

func (d *stepDisk) create(path string) (df diskFile, err error) {
	err = d.do(func() error {
		d.temp = nil
		f, err := d.hostDisk.create(path)
		df = &stepFile{f, d, path, &d.temp}
		return err
	})
	return df, err
}

// open is no step, because opening changes nothing.
func (d *stepDisk) open(path string) (diskFile, error) {
	f, err := d.hostDisk.open(path)
	if err != nil {
		return nil, err
	}
	return &stepFile{f, d, path, &d.synced}, nil
}

func (d *stepDisk) rename(from, to string) error {
	return d.do(func() error {
		d.synced, d.named = d.temp, false
		return d.hostDisk.rename(from, to)
	})
}

func (d *stepDisk) syncDir(string) error {
	return d.do(func() error { d.named = true; return nil })
}

// A tear makes the content after a power loss from the synced content and the content
// that was written. Both have the same length.
type tear func(synced, written []byte) []byte

// dropped is the power loss that drops all unsynced writes.
func dropped(synced, _ []byte) []byte { return synced }

// losePower sets the mark file to its content after a power loss.
func (d *stepDisk) losePower(t testing.TB, tear tear) {
	t.Helper()
	if !d.named {
		os.Remove(d.path)
		return
	}
	written, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) == len(d.synced) {
		d.synced = tear(slices.Clone(d.synced), written)
	}
	overwrite(t, d.path, d.synced)
}

// overwrite replaces the content of a file in place. Not os.WriteFile, which empties the
// file first: file systems then write the new content to disk at once.
func overwrite(t testing.TB, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

type stepFile struct {
	diskFile
	d      *stepDisk
	path   string
	synced *[]byte
}

func (f *stepFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.d.do(func() error { n, err = f.diskFile.WriteAt(b, at); return err })
	if f.path == f.d.path {
		f.d.writes++
	}
	return n, err
}

func (f *stepFile) syncData() error {
	if f.path == f.d.path {
		f.d.syncs++
	}
	return f.d.do(func() (err error) { *f.synced, err = os.ReadFile(f.path); return err })
}

// tears are the power losses of the tests. Each unsynced block is old or new, and at most
// one block is torn or noise.
var tears = map[string]tear{
	"dropped": dropped,
	"forward": func(synced, written []byte) []byte {
		n := rand.IntN(len(written))
		return append(written[:n], synced[n:]...)
	},
	"backward": func(synced, written []byte) []byte {
		n := rand.IntN(len(written))
		return append(synced[:n], written[n:]...)
	},
	"any blocks": func(synced, written []byte) []byte {
		torn := rand.IntN(4)
		for n := range len(written) / blockSize {
			from, to := written[n*blockSize:][:blockSize], synced[n*blockSize:][:blockSize]
			switch {
			case bytes.Equal(from, to):
			case n == torn:
				for i := range to {
					to[i] = byte(rand.Uint32())
				}
			case rand.IntN(2) == 0:
				copy(to, from)
			}
		}
		return synced
	},
}

// Tests the invariants F1 and F2 of File: each fault at each step of a short
// history, with and without a power loss after the fault.
func TestMarkHoldsWhereverItCrashes(t *testing.T) {
	powers := maps.Clone(tears)
	powers["lasts"] = nil // only the process dies, or the disk fails
	ran := 0
	for _, fault := range []fault{failsBefore, failsAfter, killedBefore, killedAfter} {
		for power, tear := range powers {
			for at := 1; ; at++ {
				more := false
				t.Run(fmt.Sprintf("%v/power %s/%d", fault, power, at), func(t *testing.T) {
					more = crashAt(t, at, fault, tear)
				})
				ran++
				if !more {
					break
				}
			}
		}
	}
	if ran < len(powers)*4*12 {
		t.Errorf("only %d crashes were tried", ran)
	}
}

// crashAt runs one history with a fault at step at, and then checks the mark. It
// returns false if the history ended before that step.
func crashAt(t *testing.T, at int, fault fault, power tear) (more bool) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path, at: at, fault: fault}
	c := &crash{t: t, disk: d}
	ended := c.history(power != nil)

	more = d.step >= at
	d.at = 0 // no further faults
	if power != nil {
		d.losePower(t, power)
	} else if c.other != nil {
		// The survivor writes with the same token that the dead process showed.
		if !ended && c.next < len(crashTokens) {
			c.do(c.other, crashTokens[c.next])
		}
		c.check(c.other)
	}
	// A power loss must not undo the survivor's write either.
	d.losePower(t, dropped)
	f := c.open()
	if f == nil {
		t.Fatal("cannot open after the crash")
	}
	c.check(f)
	if err := c.do(f, 9); err != nil {
		t.Errorf("Do(9) after the crash: %v", err)
	}
	d.losePower(t, dropped)
	if f = c.open(); f != nil {
		c.check(f)
	}
	return more
}

var crashTokens = []Token{3, 3, 5, 4, 8}

// crash is one history on a faulty disk, with the facts that the mark must keep.
type crash struct {
	t     *testing.T
	disk  *stepDisk
	other *File // another process, started before the history
	next  int   // index in crashTokens of the next token

	written Token // highest token of a started write
	told    Token // highest mark that Current has returned
}

// history writes with all crashTokens. It returns true if no fault killed the
// process and the power did not fail.
func (c *crash) history(power bool) (ended bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	c.other = c.open()
	f := c.open()
	if f == nil {
		f = c.open() // the fault is over
	}
	if f == nil {
		c.t.Fatal("cannot open on a sound disk")
	}
	for ; c.next < len(crashTokens); c.next++ {
		err := c.do(f, crashTokens[c.next])
		if errors.Is(err, errDisk) {
			c.do(f, crashTokens[c.next]) // the second try uses the same File
		}
		if power && c.disk.step >= c.disk.at {
			return false // the power fails right after the fault
		}
		c.current(f)
	}
	return true
}

func (c *crash) open() *File {
	f, err := openFile(c.disk.path, c.disk)
	if err != nil {
		if !errors.Is(err, errDisk) {
			c.t.Errorf("open: %v", err)
		}
		return nil
	}
	c.t.Cleanup(func() { f.Close() })
	return f
}

func (c *crash) do(f *File, tok Token) error {
	err := f.Do(tok, func() error {
		if tok < c.written {
			c.t.Errorf("token %d writes after token %d", tok, c.written)
		}
		c.written = max(c.written, tok)
		return nil
	})
	if err != nil && !errors.Is(err, ErrStale) && !errors.Is(err, errDisk) {
		c.t.Errorf("Do(%d): %v", tok, err)
	}
	return err
}

func (c *crash) current(f *File) {
	m, err := f.Current()
	if err != nil {
		if !errors.Is(err, errDisk) {
			c.t.Errorf("Current: %v", err)
		}
		return
	}
	if m < c.written || m < c.told {
		c.t.Errorf("the mark is %d, after %d was told and %d written", m, c.told, c.written)
	}
	c.told = max(c.told, m)
}

// check fails unless f knows the mark and refuses a token below the last write.
func (c *crash) check(f *File) {
	c.current(f)
	if c.written > 1 {
		if err := c.do(f, c.written-1); !errors.Is(err, ErrStale) {
			c.t.Errorf("Do(%d) after %d was written: %v", c.written-1, c.written, err)
		}
	}
}

// A process dies between its write and its sync. Another process asks for the mark, and
// then the power fails. The mark must not be below the mark that was told.
func TestCurrentTellsOnlyWhatIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writeRaw(t, path, record{2, 7}) // and not synced
	told := fileGuard{f}.mustCurrent(t)
	d.losePower(t, dropped)
	g, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if m := (fileGuard{g}).mustCurrent(t); m != 7 || m < told {
		t.Errorf("the mark was told as %d, and after the power loss it is %d", told, m)
	}
}

// The power fails in the store of token 8 after token 5, at each byte, in both
// directions. The mark is 5 or 8 then, and the guard goes on.
func TestStoreTornAtEveryByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tok := range []Token{3, 4, 5} {
		if err := f.Claim(tok); err != nil {
			t.Fatal(err)
		}
	}
	synced := slices.Clone(d.synced)
	if err := f.Claim(8); err != nil {
		t.Fatal(err)
	}
	written := d.synced
	read := make(map[Token]int)
	for n := range written {
		if in := n % blockSize; in > maxLine && in < blockSize-4 && n%31 > 0 {
			continue // among newlines: all the same
		}
		for _, torn := range [][]byte{slices.Concat(written[:n], synced[n:]), slices.Concat(synced[:n], written[n:])} {
			r, err := decodeMark(torn)
			if err != nil || r.token != 5 && r.token != 8 {
				t.Fatalf("torn at byte %d the mark reads as %d, %v", n, r.token, err)
			}
			read[r.token]++
			d.synced = slices.Clone(torn)
			overwrite(t, path, torn)
			g, err := openFile(path, d)
			if err != nil {
				t.Fatalf("torn at byte %d: %v", n, err)
			}
			if err := g.Claim(4); !errors.Is(err, ErrStale) {
				t.Fatalf("torn at byte %d, token 4 after token 5: %v", n, err)
			}
			if err := g.Claim(9); err != nil {
				t.Fatalf("torn at byte %d, token 9: %v", n, err)
			}
			d.losePower(t, dropped)
			if m := readRaw(t, path); m != 9 {
				t.Fatalf("torn at byte %d: the mark is %d after a store of 9", n, m)
			}
			g.Close()
		}
	}
	if len(read) != 2 || read[5] < 300 || read[8] < 300 {
		t.Errorf("the marks were %v", read)
	}
}

// A power loss worse than any disk's: every byte of the unsynced blocks is old, new or
// noise. The mark may then be refused, but a lower mark is never read.
func TestMarkTornAnyhowIsNeverLower(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 5_000 {
		told, next := record{uint64(2 + r.IntN(2)), Token(5 + r.IntN(1000))}, record{}
		next = record{told.count + 1, told.token + 1 + Token(r.IntN(1000))}
		old := record{told.count - 1, told.token - Token(r.IntN(5))}
		content := make([]byte, markSize)
		copy(content[told.offset():], told.pair())
		copy(content[old.offset():], old.pair())
		was, is := old.pair(), next.pair()
		noise := r.IntN(3) == 0
		for i := range was {
			if was[i] != is[i] {
				switch k := r.IntN(3); {
				case k == 0:
					was[i] = is[i]
				case k == 1 && noise:
					was[i] = byte(r.Uint32())
				}
			}
		}
		copy(content[old.offset():], was)
		got, err := decodeMark(content)
		switch {
		case err != nil:
			refused++
		case got != told && got != next:
			t.Fatalf("the mark reads as %+v, after the store of %+v and in the store of %+v", got, told, next)
		}
	}
	if refused < 500 {
		t.Errorf("only %d marks were refused", refused)
	}
}
