//go:build linux

package deploy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
)

// The bounds are for a busy host of two cores.
const (
	firstStart = 150 * time.Second // 75 to 90 s, on a quiet host
	restart    = 60 * time.Second  // of one pod
	longestGap = 8 * time.Second   // without a grant
)

func newSecret() string { return base64.StdEncoding.EncodeToString(cluster.NewSecret()) + "\n" }

// buildApp builds the program as the Containerfile does.
func buildApp(t *testing.T) string {
	t.Helper()
	if os.Getenv("WARDMOTE_DEPLOY") == "" {
		t.Skip("make deploy plays the manifests, as root on Linux: three minutes")
	}
	dir, err := os.MkdirTemp("", "wardmote-app-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "app")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", program, "./app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// The play: real processes under the manifests' settings, side by side.
func TestPlay(t *testing.T) {
	program := buildApp(t)
	for name, play := range map[string]struct {
		file, server string
		run          func(w *town)
	}{
		"Rollout":     {"memory.yaml", "10.101.0.1", playRollout},
		"ScaleToZero": {"memory.yaml", "10.102.0.1", playScaleToZero},
		"NodeLoss":    {"memory.yaml", "10.103.0.1", playNodeLoss},
		"Dir":         {"dir.yaml", "10.104.0.1", playDir},
		"Majority":    {"memory.yaml", "10.105.0.1", playMajority},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play.run(newTown(t, program, play.file, play.server))
		})
	}
}

// All pods are replaced under load. Then a version that crashes is rolled out: the
// rollout stops at its first pod, and the others serve.
func playRollout(w *town) {
	w.scale(w.m.replicas())
	w.logf("first start: all pods available after %.1f s", w.ready(firstStart).Seconds())
	l, end := w.load(), w.holders()
	defer end()
	defer l.end()

	began := time.Now()
	w.change(func() { w.version = "v2" })
	w.ready(3 * time.Minute)
	longest, grants := l.since()
	w.logf("rollout of %d pods in %.1f s: %d grants, longest time without one %v", w.replicas, time.Since(began).Seconds(), grants, longest)
	w.judge(longest)

	w.change(func() { w.version, w.crashing = "v3", 3*time.Second })
	crashed := func() *pod {
		for _, p := range w.living() {
			if p.version == "v3" {
				return p
			}
		}
		return nil
	}
	w.await("the new version has crashed three times", time.Minute, func() bool { p := crashed(); return p != nil && len(p.exits) >= 3 })
	w.mu.Lock()
	old := 0
	for _, p := range w.living() {
		old += btoi(p.version == "v2" && !p.deleted() && p.ready)
	}
	all := len(w.living())
	w.mu.Unlock()
	if old != w.m.replicas() || all != w.m.replicas()+1 {
		w.t.Errorf("%d ready pods of the old version, and %d in all, beside a version that crashes", old, all)
	}
	longest, grants = l.since()
	w.logf("a version that crashes: the rollout stands, %d grants, longest time without one %v", grants, longest)
	w.judge(longest)

	w.change(func() { w.version, w.crashing = "v2", 0 }) // kubectl rollout undo
	w.ready(restart)
	longest, _ = l.since()
	w.logf("rolled back: longest time without a grant %v", longest)
	w.judge(longest)
	w.logf("the job had %d terms", w.elections())
}

// All pods end at once, and the next ones found a new cluster.
func playScaleToZero(w *town) {
	w.scale(w.m.replicas())
	w.ready(firstStart)
	l, end := w.load(), w.holders()
	first := w.grant()
	w.scale(0)
	w.logf("all pods ended after %.1f s", w.await("all pods have ended", 30*time.Second, func() bool { return len(w.living()) == 0 }).Seconds())
	end()
	l.end()
	w.mu.Lock()
	for _, p := range w.pods {
		if last := p.exits[len(p.exits)-1]; last != "<nil>" {
			w.t.Errorf("%s ended with %s", p.name, last)
		}
	}
	w.mu.Unlock()
	w.scale(w.m.replicas())
	w.logf("back: all pods available after %.1f s", w.ready(firstStart).Seconds())
	if next := w.grant(); next <= first {
		w.t.Errorf("token %d after scale to zero, %d before", next, first)
	}
	w.logf("the job had %d terms", w.elections())
}

// A node with two of five pods vanishes without a word. The others go on; the pods are
// replaced after their toleration; the node comes back and ends its pods.
func playNodeLoss(w *town) {
	w.scale(w.m.replicas())
	w.ready(firstStart)
	l, end := w.load(), w.holders()
	defer end()
	defer l.end()
	w.mu.Lock()
	node := w.living()[0].node
	w.mu.Unlock()
	began := time.Now()
	lost := w.lose(node)
	if len(lost) != 2 {
		w.t.Fatalf("%d pods on %s", len(lost), node)
	}
	// A lock of a lost pod is free a TTL later, and an election more.
	survivor := w.survivor()
	free := w.grantBy(survivor, "held-by-"+lost[0].name, time.Minute)
	w.logf("two pods vanished; their lock was granted again after %v", free)
	if free < 6*time.Second || free > 25*time.Second { // a TTL of 10 s after the last beat, sent within a third of it
		w.t.Errorf("a lost pod's lock was granted again after %v", free)
	}
	longest, grants := l.since()
	w.logf("meanwhile %d grants, longest time without one %v", grants, longest)
	w.judge(longest)
	w.await("the lost pods are replaced", 2*time.Minute, func() bool {
		n := 0
		for _, p := range w.living() {
			n += btoi(p.available(w.minReady()) && !p.lost)
		}
		return n == w.m.replicas()
	})
	w.logf("replaced after %.1f s", time.Since(began).Seconds())
	w.regain(lost)
	w.ready(restart)
	longest, _ = l.since()
	w.logf("the node is back, its old pods have ended; longest time without a grant %v", longest)
	w.judge(longest)

	// A drain evicts one pod, and the second pod waits for the first one's successor.
	first, second := w.survivor(), (*pod)(nil)
	if err := w.evict(first); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	for _, p := range w.living() {
		if p.ready && !p.deleted() {
			second = p
		}
	}
	w.mu.Unlock()
	if err := w.evict(second); err != errBudget {
		w.t.Errorf("a second eviction at once: %v", err)
	}
	w.ready(restart)
	if err := w.evict(second); err != nil {
		w.t.Error(err)
	}
	w.ready(restart)
	longest, _ = l.since()
	w.logf("two evictions, one after the other: longest time without a grant %v", longest)
	w.judge(longest)
	w.logf("the job had %d terms", w.elections())
}

// Two of three pods in memory vanish at one moment and for certain, as with a machine that
// has lost its power and is deleted from the list of nodes. Their successors come at other
// addresses. The survivor and the successors found a cluster in place of the lost one: no
// process of the survivor ends, its lock is told lost, and tokens go on rising.
func playMajority(w *town) {
	w.scale(3)
	w.logf("first start: all pods available after %.1f s", w.ready(firstStart).Seconds())
	l := w.load()
	defer l.end()
	survivor := w.survivor()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	kept, lines, token, err := w.open(ctx, survivor, "kept")
	if err != nil {
		w.t.Fatal(err)
	}
	defer kept.Close()

	began := time.Now()
	w.change(func() {
		for _, p := range w.living() {
			if p != survivor {
				_ = p.process.Kill()
				w.delete(p)
			}
		}
	})
	l.since()
	w.ready(firstStart)
	longest, _ := l.since()
	w.logf("two of three pods vanished: all available after %.1f s, longest time without a grant %v", time.Since(began).Seconds(), longest)
	var told answerLine
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &told) != nil || told.Lost == "" {
		w.t.Errorf("the survivor's lock was not told lost: %q, %v", lines.Text(), lines.Err())
	}
	w.logf("the survivor's lock: %s", told.Lost)
	again, _, next, err := w.open(ctx, survivor, "kept")
	if err != nil {
		w.t.Fatal(err)
	}
	again.Close()
	if next <= token {
		w.t.Errorf("token %d in the successor, %d before", next, token)
	}
	if survivor.starts != 1 {
		w.t.Errorf("the survivor was started %d times", survivor.starts)
	}
	w.logf("the job had %d terms", w.elections())
}

// A StatefulSet: the rotation of the secret by three rolling restarts, evictions, the loss
// of a node that comes back, and scale to zero and back.
func playDir(w *town) {
	w.scale(w.m.replicas())
	w.logf("first start: all pods available after %.1f s", w.ready(firstStart).Seconds())
	l, end := w.load(), w.holders()
	old := w.secret
	next := newSecret()
	for i, secret := range []string{old + next, next + old, next} {
		w.change(func() { w.secret, w.version = secret, []string{"add", "first", "remove"}[i] })
		took := w.ready(3 * time.Minute)
		longest, grants := l.since()
		w.logf("rotation, step %d: a rolling restart of %.1f s, %d grants, longest time without one %v", i+1, took.Seconds(), grants, longest)
		w.judge(longest)
	}

	w.mu.Lock()
	pods := w.living()
	w.mu.Unlock()
	if err := w.evict(pods[0]); err != nil {
		w.t.Error(err)
	}
	if err := w.evict(pods[1]); err != errBudget {
		w.t.Errorf("a second eviction at once: %v", err)
	}
	w.ready(restart)
	longest, _ := l.since()
	w.logf("an eviction: longest time without a grant %v", longest)
	w.judge(longest)

	lost := w.lose("node-b")
	w.await("the node counts as lost", 2*nodeGrace, func() bool { return !lost[0].ready })
	longest, grants := l.since()
	w.logf("a node vanished: %d grants, longest time without one %v", grants, longest)
	w.judge(longest)
	w.regain(lost)
	w.ready(restart)

	first := w.grant()
	end()
	l.end()
	w.scale(0)
	w.logf("all pods ended after %.1f s", w.await("all pods have ended", 30*time.Second, func() bool { return len(w.living()) == 0 }).Seconds())
	w.scale(w.m.replicas())
	took := w.await("a pod is ready", restart, func() bool { return slices.ContainsFunc(w.living(), func(p *pod) bool { return p.ready }) })
	w.logf("back: the first pod was ready after %.1f s", took.Seconds())
	w.ready(restart)
	if next := w.grant(); next <= first {
		w.t.Errorf("token %d after scale to zero, %d before", next, first)
	}
	w.logf("the job had %d terms", w.elections())
}

// judge fails if the clients waited too long since the last judgement, on a host that ran.
func (w *town) judge(longest time.Duration) {
	w.t.Helper()
	stood := w.stalls.Sum(w.judged)
	w.judged = time.Now()
	if longest > longestGap+stood {
		w.t.Errorf("no grant for %v, and the host stood still for %v", longest, stood)
	}
}

// survivor returns a ready pod.
func (w *town) survivor() *pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := w.living()
	i := slices.IndexFunc(pods, func(p *pod) bool { return p.ready && !p.deleted() && !p.lost })
	if i < 0 {
		w.t.Fatal("no pod is ready")
	}
	return pods[i]
}

// grant returns the token of a grant.
func (w *town) grant() fence.Token {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), restart)
	defer cancel()
	body, _, token, err := w.open(ctx, w.survivor(), "asked")
	if err != nil {
		w.t.Fatal(err)
	}
	body.Close()
	return token
}

// grantBy returns how long a pod waits for a lock.
func (w *town) grantBy(p *pod, key string, most time.Duration) time.Duration {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	began := time.Now()
	body, _, _, err := w.open(ctx, p, key)
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	body.Close()
	return time.Since(began)
}
