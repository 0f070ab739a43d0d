package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// A member with a damaged file refuses to start, says what to do, and leaves the
// file as it is. What it says to do brings the member back, and the others grant
// meanwhile.
func TestADamagedFileIsRefusedWithTheWayOut(t *testing.T) {
	t.Parallel() // waits for the disk
	record := func(dir string) string { return filepath.Join(dir, "identity") }
	log := func(dir string) string { return filepath.Join(dir, "raft", "raft.db") }
	segment := func(dir string) string { return filepath.Join(dir, "raft", "log", "1.segment") }
	snapshot := func(dir string) string { return filepath.Join(dir, "raft", "snapshots", "1-2-3.snapshot") }
	flip := func(at func(size int) int) func([]byte) []byte {
		return func(b []byte) []byte { b[at(len(b))] ^= 4; return b }
	}
	middle := func(size int) int { return size / 2 }
	came := make(map[string]bool) // members have come back without this file; once is enough in a quick round
	for _, c := range []struct {
		about  string
		file   func(dir string) string
		damage func([]byte) []byte
		away   string // what the operator moves away
	}{
		{"identity, a flipped bit", record, flip(middle), "."},
		{"identity, empty", record, func([]byte) []byte { return nil }, "."},
		{"identity, cut", record, func(b []byte) []byte { return b[:len(b)-1] }, "."},
		{"raft.db, the first meta page", log, flip(func(int) int { return 70 }), "raft"},
		{"raft.db, the second meta page", log, flip(func(int) int { return 4096 + 70 }), "raft"},
		{"raft.db, cut", log, func(b []byte) []byte { return b[:len(b)/3] }, "raft"},
		{"raft.db, another program's", log, func([]byte) []byte { return []byte(strings.Repeat("#!/bin/sh\n", 3000)) }, "raft"},
		{"log, a flipped bit", segment, flip(func(int) int { return 200 }), "raft"},
		{"log, cut", segment, func(b []byte) []byte { return b[:1000] }, "raft"},
		{"a snapshot", snapshot, func([]byte) []byte { return []byte("half a snapshot") }, "raft"},
	} {
		t.Run(c.about, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(b *bubble) {
				b.form(inDir(dir))
				name := b.followers()[0].Name()
				own := filepath.Join(dir, name)
				if err := b.nodes[name].Stop(); err != nil {
					t.Fatal(err)
				}
				delete(b.nodes, name)

				path := c.file(own)
				whole, err := os.ReadFile(path)
				if err != nil && c.away == "." {
					t.Fatal(err)
				}
				damaged := c.damage(bytes.Clone(whole))
				if err := os.WriteFile(path, damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				cfg := b.config(name)
				cfg.Dir = own
				for range 2 {
					_, err = Start(context.Background(), cfg)
					var bad *ConfigError
					if !errors.As(err, &bad) || bad.Field != "Config.Dir" || !strings.Contains(bad.Reason, path) && !strings.Contains(bad.Reason, "identity: ") ||
						!strings.Contains(bad.Reason, "away and start again") || !strings.Contains(bad.Reason, "older copy") {
						t.Fatalf("started: %v", err)
					}
					if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
						t.Errorf("the file has changed: %v", err)
					}
				}

				if kind, _, _ := strings.Cut(c.about, ","); came[kind] && !testrounds.Full() {
					return
				} else {
					came[kind] = true
				}
				away := filepath.Join(t.TempDir(), "away")
				if err := os.Rename(filepath.Join(own, c.away), away); err != nil {
					t.Fatal(err)
				}
				b.hold(b.leader(), 1, "meanwhile")
				back := b.join(name, inDir(dir))
				b.hold(back, 2, "afterwards")
				deadline := time.Now().Add(3 * time.Minute)
				for !votesAgain(back) {
					if time.Now().After(deadline) {
						t.Fatalf("does not vote again: %+v", back.Health(b.within(time.Minute)))
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// A Dir keeps its kind of log, and says so.
func TestADirKeepsItsKindOfLog(t *testing.T) {
	t.Parallel() // waits for the disk
	for first, then := range map[Log]Log{LogSegments: LogBolt, LogBolt: LogSegments} {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			b.form(inDir(dir), func(c *Config) { c.Voting.Log = first })
			name := b.followers()[0].Name()
			if err := b.nodes[name].Stop(); err != nil {
				t.Fatal(err)
			}
			delete(b.nodes, name)
			cfg := b.config(name)
			cfg.Dir, cfg.Voting.Log = filepath.Join(dir, name), then
			_, err := Start(context.Background(), cfg)
			var bad *ConfigError
			if !errors.As(err, &bad) || bad.Field != "Config.Voting.Log" || !strings.Contains(bad.Reason, then.String()+" and ") {
				t.Fatalf("started: %v", err)
			}
			back := b.join(name, inDir(dir), func(c *Config) { c.Voting.Log = first })
			if !votesAgain(back) {
				t.Error("does not vote with the log as it was")
			}
		})
	}
}

// votesAgain reports whether the node runs a raft that votes.
func votesAgain(n *Node) bool {
	r := n.seat.Current()
	return r != nil && r.Votes()
}

func TestADirThatOthersCanChangeIsAConfigError(t *testing.T) {
	t.Parallel() // waits for the disk
	if runtime.GOOS == "windows" {
		t.Skip("no owners and modes")
	}
	refused := func(dir, reason string) {
		t.Helper()
		_, err := Start(context.Background(), Config{Name: "a", InitialSize: 1, Dir: dir})
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Dir" || !strings.HasPrefix(bad.Reason, dir+": ") || !strings.Contains(bad.Reason, reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
	dir := filepath.Join(t.TempDir(), "a")
	l := newLogbook()
	cfg := Config{Name: "a", InitialSize: 1, Dir: dir}
	start := func() {
		t.Helper()
		n, err := Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	start()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%v: %v", info, err)
		}
	}

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused(dir, "every user can write to it (mode 0777): run chmod 0700 "+dir)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refused(link, "name its target instead")

	record := filepath.Join(dir, "identity")
	if err := os.Chmod(record, 0o644); err != nil {
		t.Fatal(err)
	}
	l.config(&cfg)
	start()
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info, err)
	}
	if lines := strings.Join(l.book.lines, "\n"); !strings.Contains(lines, "modes of files in Dir narrowed") || !strings.Contains(lines, "files=identity next=") {
		t.Errorf("the log says nothing of the mode:\n%s", lines)
	}
	l.sound(t)

	if err := errors.Join(os.Rename(record, record+"2"), os.Symlink(record+"2", record)); err != nil {
		t.Fatal(err)
	}
	refused(dir, "identity: a symbolic link")
}
