//go:build linux

package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// answerLine is a line of the program's answer.
type answerLine struct {
	Token fence.Token
	Lost  string
	Error string
}

// open asks a pod for a lock. The lock lasts until the answer is closed.
func (w *town) open(ctx context.Context, p *pod, key string) (io.Closer, *bufio.Scanner, fence.Token, error) {
	url := fmt.Sprintf("http://%s:%d/locks/%s", p.at.address, portOf(&p.spec.Containers[0], "http"), key)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, 0, err
	}
	answer, err := w.net.client(0).Do(r)
	if err != nil {
		return nil, nil, 0, err
	}
	lines := bufio.NewScanner(answer.Body)
	var line answerLine
	if lines.Scan() {
		err = json.Unmarshal(lines.Bytes(), &line)
	}
	if err == nil && line.Token == 0 {
		err = fmt.Errorf("%s: %+v", answer.Status, line)
	}
	if err != nil {
		answer.Body.Close()
		return nil, nil, 0, err
	}
	return answer.Body, lines, line.Token, nil
}

// load are clients that take one key after the other, each by a ready pod, one after the
// other, as the program's service leads them. No client asks a pod of a lost node: the
// time without a grant is the cluster's.
type load struct {
	w     *town
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	grants  int
	told    int // of the grants, by since
	last    time.Time
	longest time.Duration // between two grants
	tokens  map[string]fence.Token
}

const (
	clients = 2
	patient = 3 * time.Second  // a client asks another pod after so long
	trust   = 10 * time.Second // the manifests' TTL
)

func (w *town) load() *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{w: w, stop: stop, tokens: make(map[string]fence.Token)}
	for i := range clients {
		l.ended.Go(func() { l.run(ctx, i) })
	}
	w.await("a client has a grant", restart, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.grants > 0 })
	return l
}

func (l *load) run(ctx context.Context, client int) {
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		l.w.mu.Lock()
		pods := slices.DeleteFunc(l.w.living(), func(p *pod) bool { return !p.ready || p.deleted() || p.lost })
		l.w.mu.Unlock()
		if len(pods) == 0 {
			continue
		}
		key := fmt.Sprintf("order-%d-%d", client, n%4)
		asking, cancel := context.WithTimeout(ctx, patient)
		body, _, token, err := l.w.open(asking, pods[n%len(pods)], key)
		if err == nil { // else the client asks another pod
			body.Close()
			l.granted(key, token)
		}
		cancel()
	}
}

func (l *load) granted(key string, token fence.Token) {
	now := time.Now()
	l.mu.Lock()
	before, first := l.tokens[key], l.grants == 0
	if !first {
		l.longest = max(l.longest, now.Sub(l.last))
	}
	l.grants, l.last, l.tokens[key] = l.grants+1, now, token
	l.mu.Unlock()
	if token <= before {
		l.w.fail("%s was granted with token %d after %d", key, token, before)
	}
	if first {
		l.w.change(func() {})
	}
}

// since returns the longest time without a grant since the last call of since.
func (l *load) since() (longest time.Duration, grants int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest, grants = max(l.longest, time.Since(l.last)), l.grants-l.told
	l.longest, l.told = 0, l.grants
	return longest, grants
}

func (l *load) end() {
	l.stop()
	l.ended.Wait()
}

// holders hold one lock by each pod, from when it is ready until the pod is told to end.
// A lock that ends earlier is a failure, unless the pod's node is lost.
func (w *town) holders() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var holding sync.WaitGroup
	holding.Go(func() {
		held := make(map[*pod]bool)
		for {
			w.mu.Lock()
			changed := w.changed
			for _, p := range w.living() {
				if p.ready && !p.deleted() && !held[p] && p.crashAfter == 0 {
					held[p] = true
					holding.Go(func() { w.hold(ctx, p) })
				}
			}
			w.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	})
	w.await("each pod holds its lock", restart, func() bool {
		return !slices.ContainsFunc(w.living(), func(p *pod) bool { return !p.holds })
	})
	return func() { stop(); holding.Wait() }
}

func (w *town) hold(ctx context.Context, p *pod) {
	body, lines, _, err := w.open(ctx, p, "held-by-"+p.name)
	text := ""
	if err == nil {
		w.change(func() { p.holds = true })
		for lines.Scan() {
			text = lines.Text()
		}
		err = lines.Err()
		body.Close()
	}
	w.mu.Lock()
	excused := ctx.Err() != nil || p.deleted() || p.cut || p.gone
	w.mu.Unlock()
	if stood := w.stalls.Sum(time.Now().Add(-trust)); !excused && stood > trust/3 {
		w.logf("%s lost its lock on a host that stood still for %v: %s %v", p.name, stood, text, err)
	} else if !excused {
		w.fail("%s lost its lock: %s %v", p.name, text, err)
	}
}

// elections checks that the tokens of the program's job rise in the order of time.
func (w *town) elections() (terms int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []election
	for _, p := range w.pods {
		all = append(all, p.elected...)
	}
	slices.SortFunc(all, func(a, b election) int { return a.at.Compare(b.at) })
	for i := 1; i < len(all); i++ {
		if all[i].token <= all[i-1].token {
			w.t.Errorf("the job's token %d at %v came after %d at %v", all[i].token, all[i].at, all[i-1].token, all[i-1].at)
		}
	}
	return len(all)
}
