package host

import (
	"sync"
	"time"
)

// Disk is the disk under a store. A nil *Disk, and a zero one, take every write. The
// methods may be called from any goroutine.
type Disk struct {
	// Applied is called with each entry of commands that the replica above this disk
	// applies, in log order, on raft's goroutine: a test reads the committed log of the
	// cluster so. It is set before the first use, and must not change the entry. at is the
	// time at which the leader put the entry in its log. nil: nobody reads.
	Applied func(index uint64, entry []byte, at time.Time)

	// Log is how many entries of raft's log make a snapshot due, and how many are kept in
	// front of one, so that a test sees snapshots without thousands of entries. It is set
	// before the first use. 0: as many as on any disk.
	Log uint64

	mu   sync.Mutex
	hang chan struct{} // not nil while writes hang; closed by Heal and Fail
	err  error         // the result of writes
}

// Write is called before each write. While the disk hangs, Write waits. If the result is
// an error, nothing may be written.
func (d *Disk) Write() error {
	if d == nil {
		return nil
	}
	for {
		d.mu.Lock()
		hang, err := d.hang, d.err
		d.mu.Unlock()
		if hang == nil {
			return err
		}
		<-hang
	}
}

// Apply tells Applied of an entry.
func (d *Disk) Apply(index uint64, entry []byte, at time.Time) {
	if d != nil && d.Applied != nil {
		d.Applied(index, entry, at)
	}
}

// Entries returns Log, or the usual number.
func (d *Disk) Entries(usual uint64) uint64 {
	if d != nil && d.Log > 0 {
		return d.Log
	}
	return usual
}

// Hang makes each write wait.
func (d *Disk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang == nil {
		d.hang = make(chan struct{})
	}
	d.err = nil
}

// Fail makes each write fail with err, those that hang too.
func (d *Disk) Fail(err error) { d.set(err) }

// Heal makes the disk take writes again, those that hang too.
func (d *Disk) Heal() { d.set(nil) }

func (d *Disk) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
}
