package raftstore

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// TestMain sets the number of rapid's cases: 30, or 100 in a full run. Most of
// them wait for the disk.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, child(dir, os.Getenv(childOptions)))
		os.Exit(1)
	}
	testrounds.CollectRarely()
	if err := flag.Set("rapid.checks", fmt.Sprint(testrounds.Rounds(30, 100))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func newStore(t testing.TB, engine Engine, entries, size int) *Store {
	t.Helper()
	s, err := New(engine, entries, size)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDurable(t testing.TB, dir string) *Store {
	t.Helper()
	return openWith(t, dir, Options{})
}

func openWith(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := OpenDurable(dir, o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// durable are the kinds of durable stores.
var durable = map[string]Options{
	"segments":           {},
	"segments/unflushed": {Unflushed: true},
	"bolt":               {BoltLog: true},
	"bolt/unflushed":     {BoltLog: true, Unflushed: true},
}

// eachClass runs a test on all classes of store.
func eachClass(t *testing.T, run func(t *testing.T, s *Store)) {
	t.Run("memory", func(t *testing.T) { run(t, NewInMemory()) })
	for name, o := range durable {
		t.Run(name, func(t *testing.T) { run(t, openWith(t, t.TempDir(), o)) })
	}
}

func entry(index, term uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(data), AppendedAt: time.Unix(int64(index), 7).UTC()}
}

func entries(from, to, term uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, entry(i, term, fmt.Sprintf("%d in %d", i, term)))
	}
	return logs
}

func sameEntry(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data) &&
		bytes.Equal(a.Extensions, b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

// readVote returns the last vote as raft would read it.
func readVote(t testing.TB, s *Store) string {
	t.Helper()
	term, err1 := s.GetUint64([]byte("LastVoteTerm"))
	candidate, err2 := s.Get([]byte("LastVoteCand"))
	if (err1 == nil) != (err2 == nil) {
		t.Fatalf("half a vote: %v, %v", err1, err2)
	}
	if err1 != nil {
		return err1.Error()
	}
	return fmt.Sprintf("%d %s", term, candidate)
}
