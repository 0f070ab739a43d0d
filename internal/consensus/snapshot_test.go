package consensus

import (
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A lockTable is the lock table itself as an FSM.
type lockTable struct {
	mu       sync.Mutex
	state    *machine.State
	restored int
}

func (f *lockTable) Apply(data []byte, _ time.Time) any {
	commands, err := machine.DecodeEntry(data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var outcomes []machine.Outcome
	for _, c := range commands {
		o, _ := f.state.Apply(c)
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func (f *lockTable) Configured(index uint64) {}
func (f *lockTable) Parted() error           { return nil }
func (f *lockTable) Bound() time.Duration    { return 0 }

func (f *lockTable) Snapshot() func(io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	image := f.state.Snapshot()
	return func(w io.Writer) error {
		_, err := image.WriteTo(w)
		return err
	}
}

func (f *lockTable) Check(r io.Reader) error {
	_, err := machine.Restore(r)
	return err
}

func (f *lockTable) Restore(r io.Reader) error {
	state, err := machine.Restore(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.state, f.restored = state, f.restored+1
	f.mu.Unlock()
	return nil
}

// look returns the state's digest and counts, and the number of restored
// snapshots.
func (f *lockTable) look() ([sha256.Size]byte, machine.Counts, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Digest(), f.state.Counts(), f.restored
}

func session(id int) machine.SessionID { return machine.SessionID{byte(id)} }

// propose commits a command on a leader and returns its outcome.
func propose(t *testing.T, r *Raft, c machine.Command) machine.Outcome {
	t.Helper()
	out, code := r.Commit(machine.EncodeCommands([]machine.Command{c}))
	if code != wire.CodeOK {
		t.Fatalf("%T: %v", c, code)
	}
	return out.([]machine.Outcome)[0]
}

// A voter is cut off until the others have deleted the entries that the voter
// misses. The voter receives a snapshot, and then has the same lock table as the
// others: holders, queues, values and sessions.
func TestACutOffVoterCatchesUpBySnapshot(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found(func(c *Config) {
			c.NewTable = func() FSM { return &lockTable{state: machine.New()} }
			c.LastToken = func(FSM) uint64 { return 0 }
		})
		leader := b.leader()
		r := leader.raft()
		keep := r.raft.ReloadableConfig()
		keep.TrailingLogs = 5
		if err := r.raft.ReloadConfig(keep); err != nil {
			t.Fatal(err)
		}
		behind := b.followers()[0]
		b.separate(behind.name, true)
		propose(t, r, machine.LeaderStart{Term: r.Term()})
		propose(t, r, machine.Found{Cluster: founding.Cluster, Floor: 1, TTL: 60_000})
		propose(t, r, machine.Lift{Term: r.Term()})
		for id := 1; id <= 4; id++ {
			propose(t, r, machine.Open{Session: session(id), Client: fmt.Sprint("c", id), Node: "n", TTL: 60_000})
		}
		var last machine.Token
		for i := range 20 {
			id := session(i%3 + 1)
			o := propose(t, r, machine.Acquire{Session: id, Seq: uint64(i + 1), Key: fmt.Sprint("k", i%9)})
			last = max(last, o.Token)
			if o.Code == machine.Granted && i%2 == 0 {
				propose(t, r, machine.SetValue{Session: id, Token: o.Token, Rev: 1, Value: []byte{byte(i)}})
			}
		}
		propose(t, r, machine.Close{Session: session(4)})
		if err := r.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		b.separate(behind.name, false)
		b.eventually("caught up", func() bool { return behind.raft().AppliedIndex() == r.LastIndex() })
		time.Sleep(time.Second)
		want, counts, _ := r.Table().(*lockTable).look()
		if counts.Sessions != 3 || counts.Grants != 9 || counts.Waiters != 11 {
			t.Errorf("the leader has %+v", counts)
		}
		for _, c := range b.all {
			digest, counts, restored := c.raft().Table().(*lockTable).look()
			if digest != want {
				t.Errorf("%s has another table: %+v", c.name, counts)
			}
			if (restored > 0) != (c == behind) {
				t.Errorf("%s restored %d snapshots", c.name, restored)
			}
		}

		// Nothing is missing when this voter leads.
		id := raft.ServerID(behind.raft().ID())
		if err := r.raft.LeadershipTransferToServer(id, raft.ServerAddress(id)).Error(); err != nil {
			t.Fatal(err)
		}
		if l := b.leader(); l != behind {
			t.Fatalf("%s leads", l.name)
		}
		o := propose(t, behind.raft(), machine.Acquire{Session: session(1), Seq: 100, Key: "new"})
		if o.Code != machine.Granted || o.Token != last+1 {
			t.Errorf("the next grant is %+v, after token %d", o, last)
		}
	})
}

// A durable voter starts on its snapshot, applies the rest of the log behind the
// snapshot, and knows the last configuration.
func TestAVoterStartsOnASnapshotAndTheLogBehind(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		c := b.leader()
		prev := c.tape().prev()
		if err := c.raft().raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		b.commit("b")
		if err := b.stop(c.name); err != nil {
			t.Error(err)
		}
		c = b.start(c.name, inDirs(dir))
		if c.tape().restored != 1 || c.tape().entries()[0] != "a" {
			t.Errorf("restored %d snapshots, starts with %q", c.tape().restored, c.tape().entries())
		}
		b.agree("a", "b")
		if c.tape().prev() != prev {
			t.Errorf("configuration %d, was %d", c.tape().prev(), prev)
		}
	})
}
