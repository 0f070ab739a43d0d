package locks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// The function is frozen: data is stored under these shards.
func TestShardOfNeverChanges(t *testing.T) {
	for _, test := range []struct {
		key    string
		shards int
		want   int
	}{
		{"", 1, 0},
		{"", 64, 37},
		{"a", 64, 12},
		{"b", 64, 37},
		{"order-1", 64, 45},
		{"order-2", 64, 20},
		{"order-1", 16384, 10349},
		{"\x00\xff", 1000, 88},
		{"Größe", 1024, 890},
		{"x", 0, -1},
		{"x", -5, -1},
	} {
		if got := ShardOf(test.key, test.shards); got != test.want {
			t.Errorf("ShardOf(%q, %d) is %d, want %d", test.key, test.shards, got, test.want)
		}
	}
}

// waitChanged waits until ok, woken by the map's changes alone.
func (m *Shards) waitChanged(t *testing.T, ok func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		changed := m.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatal("the map does not change in time")
		}
	}
}

// A map has each shard's owner, and learns of each change by a push.
func TestShardsIsKeptCurrent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		s := newShardMap(t)
		reader, _ := w.client(t, "reader")
		ctx, cancel := context.WithCancel(bg)
		m, err := reader.Shards(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Owner(0); ok || m.Len() != 0 || len(m.Callers()) != 0 {
			t.Error("a map without callers is not empty")
		}
		const shards = 300 // more than a page
		node := w.join("node-a")
		a := node.client(Options{Name: "a", Meta: map[string]string{"http": "there"}})
		t.Cleanup(func() { shutdown(t, a) })
		spreadOn(t, a, node, "g", shards, s.work("a"), Drain(time.Second), Grace(2*time.Second), MaxMoves(200))
		// Keys below the name that are no shards.
		for _, key := range []string{"g/x", "g/01", "g/-1", "g/16384", "g/1/2", "gg/1"} {
			acquire(t, reader, key)
		}
		owned := func(by string) (n int) {
			for shard := range shards {
				if o, ok := m.Owner(shard); ok && o.Client == by {
					n++
				}
			}
			return n
		}
		m.waitChanged(t, func() bool { return owned("a") == shards })
		o, _ := m.Owner(7)
		if o.Node != "node-a" || o.Self || o.Token == 0 || o.Meta["http"] != "there" {
			t.Errorf("owner %+v", o)
		}
		for _, shard := range []int{-1, shards, 16_384} {
			if _, ok := m.Owner(shard); ok {
				t.Errorf("shard %d has an owner", shard)
			}
		}
		if got := m.Options(); got != (GroupOptions{time.Second, 2 * time.Second, 200}) || m.Len() != shards {
			t.Errorf("%d shards, options %+v", m.Len(), got)
		}
		version := m.Version()
		spreadOn(t, reader, nil, "g", shards, s.work("reader"), Weight(50), MaxMoves(200))
		m.waitChanged(t, func() bool { return owned("a") == 200 && owned("reader") == 100 })
		if m.Version() <= version {
			t.Errorf("version %d after %d", m.Version(), version)
		}
		time.Sleep(time.Second) // the map may know of a grant before the work begins
		for shard := range shards {
			o, _ := m.Owner(shard)
			l, mine := m.Mine(shard)
			if mine != o.Self || mine != (o.Client == "reader") || mine && l.Token() != o.Token {
				t.Fatalf("shard %d: %+v, mine: %v", shard, o, mine)
			}
		}
		want := []Caller{
			{Client: "a", Node: "node-a", Weight: 100, Shards: 200},
			{Client: "reader", Node: "node-reader", Self: true, Weight: 50, Shards: 100},
		}
		if got := m.Callers(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("callers %+v", got)
		}
		// A second map, made now, says the same.
		second, err := a.Shards(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		for shard := range shards {
			mine, _ := m.Owner(shard)
			theirs, _ := second.Owner(shard)
			if mine.Token != theirs.Token || mine.Client != theirs.Client || mine.Self == theirs.Self {
				t.Fatalf("shard %d: %+v and %+v", shard, mine, theirs)
			}
		}
		cancel()
		synctest.Wait()
		if err := m.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Err is %v", err)
		}
		if owned("a") != 200 {
			t.Error("the map has lost its last state")
		}
	})
}

// A map follows through leaders and partitions, and ends with its client.
func TestShardsOutlivesLeaders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		reader, m := w.client(t, "reader")
		shards, err := reader.Shards(bg, "g")
		if err != nil {
			t.Fatal(err)
		}
		a := w.spread(t, "a", "g", 4, s.work("a"))
		owned := func(by string) (n int) {
			for shard := range 4 {
				if o, ok := shards.Owner(shard); ok && o.Client == by {
					n++
				}
			}
			return n
		}
		shards.waitChanged(t, func() bool { return owned("a") == 4 })
		w.Lead()
		w.spread(t, "b", "g", 4, s.work("b"))
		shards.waitChanged(t, func() bool { return owned("b") == 2 })
		m.Isolate()
		a.leave()
		time.Sleep(time.Minute)
		if owned("a") != 2 || shards.Err() != nil {
			t.Errorf("behind a partition: %v", shards.Err())
		}
		m.Heal()
		shards.waitChanged(t, func() bool { return owned("b") == 4 && len(shards.Callers()) == 1 })
		shutdown(t, reader)
		synctest.Wait()
		if err := shards.Err(); !errors.Is(err, ErrClosed) {
			t.Errorf("Err is %v", err)
		}
		if _, err := reader.Shards(bg, "g"); err != ErrClosed {
			t.Errorf("Shards on a closed client: %v", err)
		}
	})
}

func TestShardKeys(t *testing.T) {
	for shard := range machine.MaxShards {
		if name, got, ok := machine.ShardOf(shardKey("a/b", shard)); !ok || name != "a/b" || int(got) != shard {
			t.Fatalf("shard %d is read as %d of %q, %v", shard, got, name, ok)
		}
	}
}
