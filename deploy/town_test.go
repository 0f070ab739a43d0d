//go:build linux

package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// Times of Kubernetes that no manifest has.
const (
	published = time.Second      // until a service has a new address, or has one no more
	cached    = 5 * time.Second  // a DNS answer is kept by the server
	nodeGrace = 10 * time.Second // until a silent node counts as lost; 40 s and more in Kubernetes
)

// town plays Kubernetes for one manifest: its nodes, kubelets and controllers, services
// and DNS server. Pods are real processes.
type town struct {
	t       *testing.T
	m       *manifest
	net     *network
	program string
	dir     string
	nodes   []string
	began   time.Time

	mu       sync.Mutex
	changed  chan struct{} // closed at the next change
	pods     []*pod        // all that ever were, in order
	replicas int
	version  string
	crashing time.Duration // pods of the version crash so long after each start
	secret   string
	made     int
	failures []string
	answers  []string // of DNS
	asked    time.Time

	stalls *testrounds.Stalls // of this process, and so of the host
	judged time.Time

	over chan struct{}
	work sync.WaitGroup
}

func newTown(t *testing.T, program, file, server string) *town {
	content, err := os.ReadFile(filepath.Join("kubernetes", file))
	if err != nil {
		t.Fatal(err)
	}
	m, err := readManifest(content)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "wardmote-deploy-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // the pods' user looks in
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &town{
		t: t, m: m, program: program, dir: dir, nodes: []string{"node-a", "node-b", "node-c"}, began: time.Now(),
		changed: make(chan struct{}), version: "v1", secret: newSecret(), over: make(chan struct{}),
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.stalls, w.judged = testrounds.WatchStalls(nil), w.began
	t.Cleanup(w.stalls.Stop)
	w.net = newNetwork(t, server)
	w.net.serveDNS(t, w.lookup)
	w.work.Go(w.control)
	t.Cleanup(w.end)
	return w
}

// end ends all pods, and prints the logs of a failed play.
func (w *town) end() {
	var failures []string
	w.change(func() {
		failures = w.failures
		close(w.over)
		w.replicas = 0
		for _, p := range w.living() {
			w.delete(p)
			if p.process != nil {
				_ = p.process.Kill()
			}
		}
	})
	w.work.Wait()
	for _, f := range failures {
		w.t.Error(f)
	}
	if w.t.Failed() {
		for _, p := range w.pods {
			w.t.Logf("%s at %s on %s, starts %d, exits %q\n%s", p.name, p.at.address, p.node, p.starts, p.exits, p.log.String())
		}
	}
}

// change changes the town, and wakes every waiter.
func (w *town) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *town) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.over:
	default:
		w.failures = append(w.failures, fmt.Sprintf(format, args...))
	}
}

// logf notes a line of the play, with its time.
func (w *town) logf(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%5.1f s: %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// await waits until holds returns true, and returns the time that passed. The function
// holds runs under w.mu.
func (w *town) await(text string, most time.Duration, holds func() bool) time.Duration {
	w.t.Helper()
	began, late := time.Now(), time.NewTimer(most)
	defer late.Stop()
	for {
		w.mu.Lock()
		ok, changed := holds(), w.changed
		w.mu.Unlock()
		if ok {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-late.C:
			w.t.Fatalf("after %v not yet: %s\n%s", most, text, w.state())
		}
	}
}

func (w *town) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, p := range w.living() {
		fmt.Fprintf(&b, "%s %s on %s: ready %t, deleted %t, lost %t, starts %d\n", p.name, p.version, p.node, p.ready, p.deleted(), p.lost, p.starts)
	}
	return b.String()
}

// living returns the pods that exist, pods about to end included.
func (w *town) living() (pods []*pod) {
	for _, p := range w.pods {
		if !p.gone {
			pods = append(pods, p)
		}
	}
	return pods
}

func (w *town) minReady() time.Duration {
	if w.m.deployment != nil {
		return time.Duration(w.m.deployment.Spec.MinReadySeconds) * time.Second
	}
	return time.Duration(w.m.statefulSet.Spec.MinReadySeconds) * time.Second
}

// lookup answers for the headless service: the addresses of all pods that exist if the
// manifest says so, else of the ready pods.
func (w *town) lookup(name string) ([]string, bool) {
	service := w.m.members()
	if name != service.Name+".default.svc.cluster.local." {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.answers), len(w.answers) > 0
}

// publish keeps the answers of DNS as late as Kubernetes does.
func (w *town) publish() {
	every := time.NewTicker(cached)
	defer every.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		if time.Since(w.asked) >= cached || len(w.answers) == 0 {
			w.answers, w.asked = nil, time.Now()
			for _, p := range w.living() {
				if w.m.members().Spec.PublishNotReadyAddresses || p.ready && !p.deleted() {
					w.answers = append(w.answers, p.at.address)
				}
			}
			if len(w.answers) > 0 {
				changed = nil
			}
		}
		w.mu.Unlock()
		select {
		case <-w.over:
			return
		case <-every.C:
		case <-changed:
			select {
			case <-w.over:
				return
			case <-time.After(published):
			}
		}
	}
}

// control is the controllers: each change makes them look again.
func (w *town) control() {
	w.work.Go(w.publish)
	for {
		w.mu.Lock()
		changed := w.changed
		var create []string
		if w.m.deployment != nil {
			create = w.deployment()
		} else {
			create = w.statefulSet()
		}
		w.mu.Unlock()
		for _, name := range create {
			if err := w.create(name); err != nil {
				w.fail("pod %s: %v", name, err)
			}
		}
		if len(create) > 0 {
			continue
		}
		select {
		case <-w.over:
			return
		case <-changed:
		}
	}
}

// deployment deletes pods as the strategy allows, and returns a name "" for each pod to
// create.
func (w *town) deployment() (create []string) {
	strategy := w.m.deployment.Spec.Strategy.RollingUpdate
	var current, old, available []*pod
	for _, p := range w.living() {
		if p.deleted() {
			continue
		}
		if p.version == w.version {
			current = append(current, p)
		} else {
			old = append(old, p)
		}
		if p.available(w.minReady()) {
			available = append(available, p)
		}
	}
	total, least := len(current)+len(old), w.replicas-strategy.MaxUnavailable.IntValue()
	unavailable := 0
	for _, p := range current {
		if !p.available(w.minReady()) {
			unavailable++
		}
	}
	spare, ready := total-least-unavailable, len(available)
	slices.SortStableFunc(old, func(a, b *pod) int { // the unavailable ones first
		return cmp.Compare(btoi(a.available(w.minReady())), btoi(b.available(w.minReady())))
	})
	for _, p := range old {
		switch {
		case spare <= 0:
		case !p.available(w.minReady()):
			w.delete(p)
			spare--
			total--
		case ready > least:
			w.delete(p)
			spare--
			total--
			ready--
		}
	}
	for extra := len(current) - w.replicas; extra > 0; extra-- {
		w.delete(current[extra-1])
		total--
	}
	for n := len(current); n < w.replicas && total < w.replicas+strategy.MaxSurge.IntValue(); n++ {
		create = append(create, "")
		total++
	}
	if len(old) == 0 && len(current)+len(create) > w.replicas {
		return nil
	}
	return create
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// statefulSet creates the pods that are missing, all at once as Parallel says, and
// replaces one of an old version when all are available, the highest number first.
func (w *town) statefulSet() (create []string) {
	byName := make(map[string]*pod)
	for _, p := range w.living() {
		byName[p.name] = p
	}
	whole := true
	for i := range max(w.replicas, w.m.replicas()) {
		name := fmt.Sprintf("%s-%d", w.m.statefulSet.Name, i)
		p := byName[name]
		switch {
		case i >= w.replicas:
			if p != nil {
				w.delete(p)
			}
		case p == nil:
			create = append(create, name)
			whole = false
		case !p.available(w.minReady()):
			whole = false
		}
	}
	for i := w.replicas - 1; i >= 0 && whole; i-- {
		if p := byName[fmt.Sprintf("%s-%d", w.m.statefulSet.Name, i)]; p.version != w.version {
			w.delete(p)
			break
		}
	}
	return create
}

// delete is kubectl delete pod: the kubelet ends the pod. Under w.mu.
func (w *town) delete(p *pod) {
	if !p.deleted() {
		p.told = time.Now()
		close(p.ended)
	}
}

// create makes a pod on the node with the fewest.
func (w *town) create(name string) error {
	at, err := w.net.place("")
	if err != nil {
		return err
	}
	spec := w.m.template().Spec.DeepCopy()
	w.change(func() {
		select {
		case <-w.over:
			at.remove()
			return
		default:
		}
		if name == "" {
			name = fmt.Sprintf("%s-%s-%d", w.m.deployment.Name, w.version, len(w.pods))
		}
		p := &pod{name: name, version: w.version, node: w.choose(), at: at, spec: spec, crashAfter: w.crashing, ended: make(chan struct{})}
		if p.paths, err = w.volumes(name, spec); err != nil {
			at.remove()
			return
		}
		w.pods = append(w.pods, p)
		w.work.Add(1)
		go w.kubelet(p)
	})
	return err
}

// choose spreads the pods of a version.
func (w *town) choose() string {
	count := make(map[string]int)
	for _, p := range w.living() {
		switch {
		case p.lost:
			count[p.node] += 1000
		case p.version == w.version && !p.deleted():
			count[p.node]++
		}
	}
	return slices.MinFunc(w.nodes, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
}

// scale is kubectl scale.
func (w *town) scale(n int) { w.change(func() { w.replicas = n }) }

// ready waits until all replicas are available, and no other pod exists.
func (w *town) ready(most time.Duration) time.Duration {
	w.t.Helper()
	return w.await("all pods are available", most, func() bool {
		pods := w.living()
		return len(pods) == w.replicas && !slices.ContainsFunc(pods, func(p *pod) bool {
			return p.version != w.version || !p.available(w.minReady())
		})
	})
}

var errBudget = errors.New("the eviction would violate the disruption budget")

// evict is the eviction of a drain, under the budget.
func (w *town) evict(p *pod) (err error) {
	w.change(func() {
		healthy := 0
		for _, p := range w.living() {
			healthy += btoi(p.ready && !p.deleted())
		}
		least := w.replicas - w.m.budget.Spec.MaxUnavailable.IntValue()
		if p.ready {
			healthy--
		}
		if healthy < least {
			err = errBudget
			return
		}
		w.delete(p)
	})
	return err
}

// lose cuts a node off. Its pods run on, and count as not ready once the node counts as
// lost; they are deleted after the time of their toleration.
func (w *town) lose(node string) (lost []*pod) {
	w.change(func() {
		for _, p := range w.living() {
			if p.node == node {
				if err := p.at.cut(); err != nil {
					w.t.Error(err)
				}
				p.lost, p.cut = true, true
				lost = append(lost, p)
			}
		}
	})
	w.work.Go(func() {
		if !w.sleep(nodeGrace) {
			return
		}
		w.change(func() {
			for _, p := range lost {
				p.ready = false
			}
		})
		if !w.sleep(toleration(lost[0].spec, corev1.TaintNodeUnreachable)) {
			return
		}
		w.change(func() {
			for _, p := range lost {
				w.delete(p)
			}
		})
	})
	return lost
}

func (w *town) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.over:
		return false
	}
}

func (w *town) regain(lost []*pod) {
	w.change(func() {
		for _, p := range lost {
			if err := p.at.heal(); err != nil {
				w.t.Error(err)
			}
			p.lost = false
		}
	})
}
