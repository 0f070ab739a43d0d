package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartEndsWithItsContext(t *testing.T) {
	cause := errors.New("not today")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := Start(ctx, Config{InitialSize: 1}); err != cause {
		t.Errorf("Start returned %v", err)
	}
}

func TestAPortInUseIsAConfigError(t *testing.T) {
	n, err := Start(context.Background(), Config{InitialSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	_, err = Start(context.Background(), Config{InitialSize: 1, Bind: n.Addr()})
	var bad *ConfigError
	if !errors.As(err, &bad) || bad.Field != "Config.Bind" {
		t.Errorf("got %v", err)
	}
}

func TestADirOfAnotherMemberIsAConfigError(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Name: "a", InitialSize: 1, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	refused := func(reason string, cfg Config) {
		t.Helper()
		cfg.InitialSize, cfg.Dir = 1, dir
		_, err := Start(context.Background(), cfg)
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Dir" || !strings.HasPrefix(bad.Reason, dir+": ") || !strings.Contains(bad.Reason, reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
	refused("in use", Config{Name: "a"})
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	refused("belongs to member", Config{Name: "b"})
	refused("belongs to cluster", Config{Name: "a", Cluster: "other"})
}

// A member without a Name keeps the default name in the Dir, and logs no other
// name.
func TestADirKeepsADefaultName(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	var first string
	for range 2 {
		var log strings.Builder
		cfg := Config{InitialSize: 1, Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		n, err := Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = n.Name()
		}
		if n.Name() != first {
			t.Errorf("named %q, and then %q", first, n.Name())
		}
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), `Name: \"`+first+`\"`) {
			t.Errorf("%s started with another configuration: %s", first, log.String())
		}
	}
}

// A failed Start frees the port and the Dir, and all goroutines end: the bubble
// notices a goroutine left behind.
func TestAFailedStartLeavesNothingBehind(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		refused := func(field string, change ...func(*Config)) {
			t.Helper()
			cfg := b.config("n1")
			for _, c := range append([]func(*Config){alone, inDir(dir)}, change...) {
				c(&cfg)
			}
			n, err := Start(context.Background(), cfg)
			if err == nil {
				b.nodes["n1"] = n
				t.Fatal("started")
			}
			var bad *ConfigError
			if errors.As(err, &bad) != (field != "") || bad != nil && bad.Field != field {
				t.Errorf("got %v, want a ConfigError of %q", err, field)
			}
		}
		n := b.join("n1", alone, inDir(dir))
		cluster := n.founding.Cluster()
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		refused("Config.Bind", func(c *Config) { c.Bind = b.addr("n2") })
		// A file where the raft store should be.
		raft := filepath.Join(dir, "n1", "raft")
		if err := os.Rename(raft, raft+".whole"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(raft, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused("")
		if err := os.Remove(raft); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(raft+".whole", raft); err != nil {
			t.Fatal(err)
		}
		if n := b.join("n1", alone, inDir(dir)); n.founding.Cluster() != cluster {
			t.Error("the member is in another cluster")
		}
	})
}
