package consensus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/identity"
)

// The promise outlives the process, in each state of the departure at a crash.
func TestARetiredVoterNeverVotesAgain(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		b.agree("a")
		n1 := b.all["n1"]
		for range 2 { // idempotent
			if err := n1.seat.Depart(context.Background(), true); err != nil {
				t.Fatal(err)
			}
		}
		rec := n1.record.Get()
		if !rec.RetiredHere() || !rec.Retired.Voted || rec.Retired.Index == 0 || rec.Retired.Term == 0 || rec.Token != 1 {
			t.Errorf("record %+v", rec)
		}
		if rec.Stored || rec.Generation <= 1 || n1.seat.Current() != nil || n1.seat.Admits(1) {
			t.Errorf("still votes: %+v", rec)
		}
		if _, err := n1.seat.Invited(context.Background()); err == nil {
			t.Error("followed an invitation after the promise")
		}
		stamp := filepath.Join(dir, "n1", "raft.aside-01000000-1", stampFile)
		if text, err := os.ReadFile(stamp); err != nil || !strings.Contains(string(text), "raft n1#1\n") {
			t.Errorf("stamp %q, %v", text, err)
		}
		b.stop("n1")
		n1 = b.start("n1", inDirs(dir))
		if n1.seat.Current() != nil {
			t.Error("votes after a restart")
		}
		if _, err := n1.seat.Invited(context.Background()); err == nil {
			t.Error("followed an invitation after a restart")
		}
	})
}

// The process ended after the promise, after the stamp, or after the new generation,
// and before the rest.
func TestADepartureCutShortIsFinishedAtTheNextStart(t *testing.T) {
	for _, crash := range []func(b *bench, dir string){
		func(b *bench, dir string) {
			record := b.record(dir, "n1")
			defer record.Close()
			if err := record.Update(func(r *identity.Record) {
				r.Retired = identity.Retirement{Cluster: r.Founding.Cluster, Voted: true}
			}); err != nil {
				b.t.Fatal(err)
			}
		},
		func(b *bench, dir string) {
			if err := os.WriteFile(filepath.Join(dir, raftDir, stampFile), []byte("x"), 0o600); err != nil {
				b.t.Fatal(err)
			}
		},
		func(b *bench, dir string) {
			record := b.record(dir, "n1")
			defer record.Close()
			if err := record.Update(func(r *identity.Record) {
				r.Retired = identity.Retirement{Cluster: r.Founding.Cluster, Voted: true}
				r.Generation, r.Stored = 7, false
			}); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		dir := t.TempDir()
		onBench(t, func(b *bench) {
			b.found(inDirs(dir))
			b.commit("a")
			b.stop("n1")
			crash(b, filepath.Join(dir, "n1"))
			n1 := b.start("n1", inDirs(dir))
			if n1.seat.Current() != nil || n1.record.Get().Generation == 1 || n1.record.Get().Stored {
				t.Errorf("resumed: %+v", n1.record.Get())
			}
			if _, err := os.Stat(filepath.Join(dir, "n1", "raft.aside-01000000-1")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that goes out of use may be the last copy of the table.
func TestTheNewestTwoStoresAreKeptAside(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		n1 := b.all["n1"]
		for range 3 {
			b.leader()
			b.eventually("n1 has a log", func() bool { return n1.raft().LastIndex() > 0 || n1.record.Get().Stored })
			if err := n1.seat.Removed(context.Background(), n1.raft().ID()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if _, err := n1.seat.Invited(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		var kept []string
		for _, s := range n1.seat.asideStores() {
			kept = append(kept, filepath.Base(s.path))
		}
		if len(kept) != 2 || kept[0] != "raft.aside-01000000-2" || kept[1] != "raft.aside-01000000-3" {
			t.Errorf("kept %q", kept)
		}
	})
}

// A member without a store has nothing to move, and keeps the generation that a
// founding may name.
func TestAThinMemberDepartsWithItsGeneration(t *testing.T) {
	onBench(t, func(b *bench) {
		n4 := b.start("n4")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := n4.seat.Depart(ctx, false); err != nil {
			t.Fatal(err)
		}
		if rec := n4.record.Get(); rec.Generation != 1 || rec.RetiredHere() {
			t.Errorf("record %+v", rec)
		}
	})
}

// The promise names the newest entry of the store, so the entry must be on the disk before,
// and every entry that comes until the store is closed.
func TestThePromiseIsMadeOnASettledStore(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		disk := new(host.Disk)
		b.found(func(c *Config) {
			inDirs(dir)(c)
			c.Store.Unflushed, c.HostBoot = true, func() string { return "boot 1" }
			if c.Self.Name == "n1" {
				c.Disk = disk
			}
		})
		b.commit("a")
		b.agree("a")
		n1 := b.all["n1"]
		disk.Fail(errors.New("no flush"))
		if err := n1.seat.Depart(b.t.Context(), true); err == nil {
			t.Error("a promise on a store that was not flushed")
		}
		if rec := n1.record.Get(); rec.RetiredHere() {
			t.Errorf("the record promises the entry %d", rec.Retired.Index)
		}
	})
}
