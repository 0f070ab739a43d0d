package consensus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
)

// inDirs gives each member a Dir below dir.
func inDirs(dir string) func(*Config) {
	return func(c *Config) { c.Dir = filepath.Join(dir, c.Self.Name) }
}

func TestADurableVoterReturnsUnderItsID(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		for round := range 2 { // a single voter, then all voters
			names := []string{"n1"}
			if round == 1 {
				names = []string{"n1", "n2", "n3"}
			}
			for _, name := range names {
				if err := b.stop(name); err != nil {
					t.Error(err)
				}
			}
			for _, name := range names {
				if c := b.start(name, inDirs(dir)); c.raft().ID() != name+"#1" {
					t.Errorf("returned as %s", c.raft().ID())
				}
			}
			b.commit("b")
			if got := b.leader().tape().entries(); len(got) != round+2 || got[0] != "a" {
				t.Errorf("after a restart: %q", got)
			}
		}
	})
}

// A member that has lost its store never votes under the same ID again, because
// nobody knows how the lost store voted.
func TestALostStoreBecomesANewGeneration(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		if err := b.stop("n1"); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "n1", raftDir)); err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		n1 := b.start("n1", inDirs(dir), func(c *Config) { c.Self.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
		if n1.seat.Current() != nil {
			t.Fatalf("runs as %s on an empty store", n1.raft().ID())
		}
		rec := n1.record.Get()
		if meta, _, _ := n1.looks(); meta.Generation <= 1 || meta.Generation != rec.Generation || rec.Stored {
			t.Errorf("advertises %+v, record %+v", meta, rec)
		}
		if !strings.Contains(lines.String(), "raft store lost") {
			t.Errorf("logged %q", lines.String())
		}
		if id := b.invite(n1); id == "n1#1" {
			t.Error("votes under the ID of the lost store")
		}
		b.commit("b")
		b.agree("a", "b")
	})
}

// A store with unflushed writes is trusted for as long as its host has not gone down. A
// stop flushes it.
func TestUnflushedWritesCountUntilTheHostGoesDown(t *testing.T) {
	for name, test := range map[string]struct {
		crash, reboot, flush bool // the process is killed, the host is booted, the next process flushes
		sameID               bool
	}{
		"stop":                   {false, false, false, true},
		"stop and boot":          {false, true, false, true},
		"kill":                   {true, false, false, true},
		"kill and boot":          {true, true, false, false},
		"kill, then flushed":     {true, false, true, true},
		"kill, boot and flushed": {true, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, boot := t.TempDir(), "boot 1"
			lazy := func(c *Config) {
				inDirs(dir)(c)
				c.Store.Unflushed, c.HostBoot = true, func() string { return boot }
			}
			onBench(t, func(b *bench) {
				b.found(lazy)
				b.commit("a")
				own := filepath.Join(dir, "n1")
				if mark := b.all["n1"].record.Get().Unflushed; mark != "boot 1" {
					t.Errorf("the record says %q", mark)
				}
				killed := filepath.Join(t.TempDir(), "killed") // what a kill would leave now
				if err := os.CopyFS(killed, os.DirFS(own)); err != nil {
					t.Fatal(err)
				}
				if err := b.stop("n1"); err != nil {
					t.Error(err)
				}
				if test.crash {
					if err := errors.Join(os.RemoveAll(own), os.Rename(killed, own)); err != nil {
						t.Fatal(err)
					}
				}
				if test.reboot {
					boot = "boot 2"
				}
				n1 := b.start("n1", lazy, func(c *Config) { c.Store.Unflushed = !test.flush })
				rec := n1.record.Get()
				if !test.sameID {
					if n1.seat.Current() != nil || rec.Generation <= 1 || rec.Stored || rec.Unflushed != "" {
						t.Fatalf("votes on, record %+v", rec)
					}
					if id := b.invite(n1); id == "n1#1" {
						t.Error("votes under the ID of the lost store")
					}
				} else if n1.seat.Current() == nil || n1.raft().ID() != "n1#1" {
					t.Fatal("the store was given up")
				}
				want := "boot 2"
				if !test.reboot {
					want = "boot 1"
				}
				if test.flush {
					want = ""
				}
				if mark := n1.record.Get().Unflushed; mark != want {
					t.Errorf("afterwards the record says %q, want %q", mark, want)
				}
				b.commit("b")
				b.agree("a", "b")
			})
		})
	}
}

// A founding voter removes a store that its record does not know: of another
// generation, or of a founding that a crash cut short.
func TestAStoreNeverPutToUseIsBegunAnew(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		junk := filepath.Join(dir, "n1", raftDir, "raft.db")
		if err := errors.Join(os.MkdirAll(filepath.Dir(junk), 0o700), os.WriteFile(junk, []byte("not a store"), 0o600)); err != nil {
			t.Fatal(err)
		}
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		if !b.all["n1"].record.Get().Stored {
			t.Error("the store does not count as used")
		}
	})
}

// A member with a damaged store refuses to start, and does not vote anew.
func TestADamagedStoreStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.stop("n1")
		if err := os.WriteFile(filepath.Join(dir, "n1", raftDir, "raft.db"), []byte("damage"), 0o600); err != nil {
			t.Fatal(err)
		}
		record := b.record(filepath.Join(dir, "n1"), "n1")
		defer record.Close()
		seat := NewSeat(Config{Self: b.all["n2"].seat.cfg.Self, Dir: filepath.Join(dir, "n1"), Record: record, NewTable: b.all["n2"].seat.cfg.NewTable})
		seat.cfg.Self.Name = "n1"
		if err := seat.Resume(); err == nil || seat.Current() != nil {
			t.Errorf("started: %v", err)
		}
		if !record.Get().Stored || record.Get().Generation != 1 {
			t.Errorf("the record has changed: %+v", record.Get())
		}
	})
}

// Found starts the voters of a founding that the record has learnt since Resume.
func TestFoundStartsTheFoundingVotersOnly(t *testing.T) {
	onBench(t, func(b *bench) {
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			c := b.start(name, func(c *Config) {
				c.Record = b.record("", name)
				if err := c.Record.Update(func(r *identity.Record) { r.Founding = nil }); err != nil {
					t.Fatal(err)
				}
			})
			if c.seat.Current() != nil {
				t.Errorf("%s runs raft before the founding", name)
			}
			if _, err := c.seat.Invited(context.Background()); err == nil {
				t.Errorf("%s, in no cluster, follows an invitation", name)
			}
			if err := c.record.Update(func(r *identity.Record) { r.Founding = founding }); err != nil {
				t.Fatal(err)
			}
			c.seat.Found(context.Background())
		}
		b.commit("a")
		b.agree("a")
		if b.all["n4"].seat.Current() != nil {
			t.Error("a member that the founding does not name votes")
		}
	})
}

func TestStreamsReachTheirOwnGenerationOnly(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		n1 := b.all["n1"]
		if !n1.seat.Admits(1) || n1.seat.Admits(2) || n1.seat.Admits(0) {
			t.Error("admits another generation")
		}
		conn := &closeCounter{}
		n1.seat.Accept(conn, member.Process{}, true, 2)
		if conn.closed.Load() != 1 {
			t.Errorf("a stream to another generation was closed %d times", conn.closed.Load())
		}
	})
}

// A voter without a leader asks after a while whether its ID was removed, and
// asks again until a leader says so.
func TestAVoterWithoutALeaderAsksWhetherItWasRemoved(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		lost := b.followers()[0]
		b.separate(lost.name, true)
		leader := b.leader()
		if err := leader.raft().Remove(lost.raft().ID(), leader.tape().prev()); err != nil {
			t.Fatal(err)
		}
		asked := func() int { _, n := lost.calls(); return n }
		time.Sleep(timing.OrphanedVoter - time.Second)
		if n := asked(); n > 0 {
			t.Errorf("asked %d times in the first seconds", n)
		}
		time.Sleep(10 * time.Second)
		if n := asked(); n < 5 {
			t.Errorf("asked only %d times", n)
		}
		lost.raft() // still a voter, since no leader has answered
		lost.set(func() { lost.removed = true })
		time.Sleep(2 * time.Second)
		if meta, _, _ := lost.looks(); lost.seat.Current() != nil || meta.Voter || meta.Generation <= 1 {
			t.Errorf("goes on voting: %+v", meta)
		}
		for _, c := range b.all {
			if _, asked := c.calls(); c != lost && asked > 0 {
				t.Errorf("%s, which has a leader, asked", c.name)
			}
		}
	})
}

func TestStopKeepsTheHighestToken(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.commit("b")
		b.agree("a", "b")
		for _, name := range []string{"n1", "n2", "n3"} {
			if err := b.stop(name); err != nil {
				t.Error(err)
			}
			record := b.record(filepath.Join(dir, name), name)
			if got := record.Get().Token; got != 2 {
				t.Errorf("%s remembers token %d", name, got)
			}
			if err := record.Update(func(r *identity.Record) { r.Token = 99 }); err != nil {
				t.Error(err)
			}
			record.Close()
		}
		b.found(inDirs(dir))
		b.stop("n1")
		record := b.record(filepath.Join(dir, "n1"), "n1")
		defer record.Close()
		if got := record.Get().Token; got != 99 {
			t.Errorf("the token fell to %d", got)
		}
	})
}

// The stop of a Raft ends the leadership first, and waits for the end.
func TestLeadEndsBeforeRaftStops(t *testing.T) {
	onBench(t, func(b *bench) {
		var running atomic.Int32
		b.found(func(c *Config) {
			c.Lead = func(ctx context.Context, r *Raft) {
				running.Add(1)
				<-ctx.Done()
				time.Sleep(time.Second)
				if err := r.Barrier(); errors.Is(err, raft.ErrRaftShutdown) {
					t.Errorf("raft was stopped before its leadership: %v", err)
				}
				running.Add(-1)
			}
		})
		leader := b.leader()
		if n := running.Load(); n != 3 {
			t.Errorf("%d of 3 calls of Lead run", n)
		}
		if err := b.stop(leader.name); err != nil {
			t.Error(err)
		}
		if n := running.Load(); n != 2 {
			t.Errorf("%d calls of Lead run after a stop", n)
		}
	})
}

// A Lead that does not end in time keeps raft from stopping only for a while.
func TestALeadThatWaitsForRaftEndsWithRaft(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found(func(c *Config) {
			c.Lead = func(ctx context.Context, r *Raft) {
				for r.raft.State() != raft.Shutdown {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
		began := time.Now()
		if err := b.stop(b.leader().name); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < timing.RaftStop || took > timing.RaftStop+2*time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

// A store that was put to use by an invitation, and could not be opened, counts as
// used: the next invitation takes another generation.
func TestAnInvitationThatFailedIsRepeatedAsANewGeneration(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		engine := &unreadable{Engine: raftstore.NewMemoryEngine()}
		n4 := b.start("n4", func(c *Config) { c.Engine = engine })
		engine.broken.Store(true)
		if id, err := n4.seat.Invited(context.Background()); !errors.Is(err, errUnreadable) || n4.seat.Current() != nil {
			t.Errorf("invited as %q, %v", id, err)
		}
		engine.broken.Store(false)
		if id := b.invite(n4); id == "n4#1" {
			t.Errorf("votes as %s", id)
		}
		b.agree("a")
	})
}

// unreadable is an engine with values that a test can make unreadable.
type unreadable struct {
	raftstore.Engine
	broken atomic.Bool
}

var errUnreadable = errors.New("unreadable")

func (e *unreadable) Get(key []byte) ([]byte, error) {
	if e.broken.Load() {
		return nil, errUnreadable
	}
	return e.Engine.Get(key)
}
