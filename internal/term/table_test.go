package term_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
)

func foundedTable() *term.Table {
	table := term.NewTable()
	table.Apply(machine.EncodeCommands([]machine.Command{
		machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 3000},
		machine.Raise{Term: 1, Format: machine.MaxFormat}, machine.Lift{Term: 1}, opening(1),
	}), time.Now())
	return table
}

func digest(table *term.Table) (d [32]byte) {
	table.View(func(m *machine.State) { d = m.Digest() })
	return d
}

func TestASnapshotRestoresTheTableAndTheConfigurationsIndex(t *testing.T) {
	table := foundedTable()
	table.Configured(7)
	table.Configured(5)
	write := table.Snapshot()
	before := digest(table)
	table.Apply(machine.EncodeCommands([]machine.Command{opening(2)}), time.Now()) // later than the image
	var image bytes.Buffer
	if err := write(&image); err != nil {
		t.Fatal(err)
	}
	other := term.NewTable()
	if err := other.Restore(bytes.NewReader(image.Bytes())); err != nil {
		t.Fatal(err)
	}
	if digest(other) != before || other.ConfigIndex() != 7 || other.Format() != machine.MaxFormat {
		t.Errorf("the restored table differs, configuration at %d", other.ConfigIndex())
	}
	if table.ConfigIndex() != 7 {
		t.Errorf("configuration at %d", table.ConfigIndex())
	}
	// A table with a later configuration keeps the later index.
	other.Configured(9)
	if err := other.Restore(bytes.NewReader(image.Bytes())); err != nil || other.ConfigIndex() != 9 {
		t.Errorf("configuration at %d, %v", other.ConfigIndex(), err)
	}
}

func TestABrokenSnapshotChangesNothing(t *testing.T) {
	table := foundedTable()
	var image bytes.Buffer
	if err := table.Snapshot()(&image); err != nil {
		t.Fatal(err)
	}
	before := digest(table)
	for n := range image.Len() {
		if err := table.Restore(bytes.NewReader(image.Bytes()[:n])); err == nil {
			t.Fatalf("restored from %d bytes of %d", n, image.Len())
		}
	}
	if digest(table) != before {
		t.Error("the table has changed")
	}
	if err := table.Snapshot()(fullDisk{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("written to a full disk: %v", err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestAnEntryThatCannotBeDecodedDoesNothing(t *testing.T) {
	table := foundedTable()
	before := digest(table)
	for _, entry := range [][]byte{nil, {}, {99}, {machine.EntryVersion, 5}} {
		if outcomes := table.Apply(entry, time.Now()).([]machine.Outcome); outcomes != nil {
			t.Errorf("%x: %v", entry, outcomes)
		}
	}
	if digest(table) != before || table.Parted() != nil {
		t.Errorf("the table has changed, parted: %v", table.Parted())
	}
}

// A voter put back to an earlier version meets a Raise beyond the known formats. A
// Raise of another term raises nothing anywhere.
func TestATableParts(t *testing.T) {
	table := foundedTable()
	raise := machine.Raise{Term: 9, Format: machine.MaxFormat + 1}
	table.Apply(machine.EncodeCommands([]machine.Command{raise}), time.Now())
	if err := table.Parted(); err != nil {
		t.Errorf("parted by a Raise of another term: %v", err)
	}
	raise.Term = 1
	table.Apply(machine.EncodeCommands([]machine.Command{raise}), time.Now())
	if err := table.Parted(); !errors.Is(err, term.ErrBeyond) {
		t.Errorf("parted: %v", err)
	}
}

// The founding wait is told by the table's own clock, of whatever origin and rate.
func TestTheFoundingWaitIsToldByTheTablesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := term.NewTable()
		table.Clock = host.NewClock(time.Hour)
		table.Clock.Set(2, 0)
		table.Apply(machine.EncodeCommands([]machine.Command{machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 10_000}}), time.Now())
		for _, want := range []time.Duration{10 * time.Second, 4 * time.Second, 0} {
			if rest, waits := table.FoundingWait(); rest != want || !waits {
				t.Errorf("%v, %t, want %v", rest, waits, want)
			}
			time.Sleep(3 * time.Second)
		}
	})
}
