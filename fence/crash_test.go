package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// stepDisk is a disk that fails at one chosen step and can lose power. After a
// power loss only synced content is left.
type stepDisk struct {
	hostDisk
	path string // the mark file

	step    int   // number of steps so far
	at      int   // the number of the faulty step
	fault   fault // the fault at that step
	stores  int   // number of completed stores
	tempOK  bool  // the content of the temporary file is synced
	markOK  bool  // the content of the mark file is synced
	durable []byte
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
		d.tempOK = false
		f, err := d.hostDisk.create(path)
		df = stepFile{f, d}
		return err
	})
	return df, err
}

func (d *stepDisk) rename(from, to string) error {
	return d.do(func() error {
		d.markOK = d.tempOK
		return d.hostDisk.rename(from, to)
	})
}

func (d *stepDisk) syncDir(string) error {
	return d.do(func() error {
		d.stores++
		d.durable = nil
		if b, err := os.ReadFile(d.path); err == nil && d.markOK {
			d.durable = b
		} else if err == nil {
			d.durable = b[:len(b)/2]
		}
		return nil
	})
}

// losePower sets the mark file back to its durable content: the worst result
// that a power loss may have.
func (d *stepDisk) losePower(t testing.TB) {
	if d.durable == nil {
		os.Remove(d.path)
	} else if err := os.WriteFile(d.path, d.durable, 0o600); err != nil {
		t.Fatal(err)
	}
}

type stepFile struct {
	diskFile
	d *stepDisk
}

func (f stepFile) Write(b []byte) (n int, err error) {
	err = f.d.do(func() error { n, err = f.diskFile.Write(b); return err })
	return n, err
}

func (f stepFile) Sync() error {
	return f.d.do(func() error { f.d.tempOK = true; return nil })
}

// Tests the invariants F1 and F2 of File: each fault at each step of a short
// history, with and without a power loss after the fault.
func TestMarkHoldsWhereverItCrashes(t *testing.T) {
	ran := 0
	for _, fault := range []fault{failsBefore, failsAfter, killedBefore, killedAfter} {
		for _, power := range []bool{false, true} {
			for at := 1; ; at++ {
				more := false
				t.Run(fmt.Sprintf("%v/power=%v/%d", fault, power, at), func(t *testing.T) {
					more = crashAt(t, at, fault, power)
				})
				ran++
				if !more {
					break
				}
			}
		}
	}
	if ran < 8*20 {
		t.Errorf("only %d crashes were tried", ran)
	}
}

// crashAt runs one history with a fault at step at, and then checks the mark. It
// returns false if the history ended before that step.
func crashAt(t *testing.T, at int, fault fault, power bool) (more bool) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path, at: at, fault: fault}
	c := &crash{t: t, disk: d}
	ended := c.history(power)

	more = d.step >= at
	d.at = 0 // no further faults
	if power {
		d.losePower(t)
	} else if c.other != nil {
		// The survivor writes with the same token that the dead process showed.
		if !ended && c.next < len(crashTokens) {
			c.do(c.other, crashTokens[c.next])
		}
		c.check(c.other)
	}
	// A power loss must not undo the survivor's write either.
	d.losePower(t)
	f := c.open()
	if f == nil {
		t.Fatal("cannot open after the crash")
	}
	c.check(f)
	if err := c.do(f, 9); err != nil {
		t.Errorf("Do(9) after the crash: %v", err)
	}
	d.losePower(t)
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

// A process dies between the rename and the sync of the directory. Another
// process asks for the mark, and then the power fails. The mark must not be below
// the mark that was told.
func TestCurrentTellsOnlyWhatIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(path, encodeMark(7), 0o600); err != nil { // renamed, not synced
		t.Fatal(err)
	}
	told := fileGuard{f}.mustCurrent(t)
	d.losePower(t)
	g, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if m := (fileGuard{g}).mustCurrent(t); m < told {
		t.Errorf("the mark was told as %d, and after the power loss it is %d", told, m)
	}
}
