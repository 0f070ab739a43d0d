package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/locks"
)

const (
	metaHTTP = "http" // in Options.Meta: the process's HTTP address

	// headerToken marks a request that another process has forwarded: the token under
	// which this process owns the shard, by the sender's map. A process that does not
	// own the shard answers with headerOwner and headerToken: the HTTP address of the
	// owner, and its token. A larger token is the later news, so the two processes
	// always know whose map is stale. headerHops says how often a request was
	// forwarded.
	headerToken = "Router-Token"
	headerOwner = "Router-Owner"
	headerHops  = "Router-Hops"

	patience = 2 * time.Second // for a shard without an owner, or one that keeps moving
)

// shardMap is the part of *locks.Shards that a router needs.
type shardMap interface {
	Owner(shard int) (locks.Owner, bool)
	Mine(shard int) (*locks.Lock, bool)
	Changed() <-chan struct{}
}

// router answers requests for any key: as the owner of the key's shard, or by
// forwarding them.
type router struct {
	owners shardMap
	client http.Client

	mu     sync.Mutex
	counts map[int]map[string]int // by shard, of the shards that this process owns
	begun  chan struct{}          // closed when another shard has begun here
}

func newRouter(owners shardMap) *router {
	return &router{owners: owners, counts: make(map[int]map[string]int), begun: make(chan struct{})}
}

// own runs for each shard of this process.
func (r *router) own(ctx context.Context, shard int, l *locks.Lock) error {
	r.mu.Lock()
	r.counts[shard] = make(map[string]int)
	close(r.begun)
	r.begun = make(chan struct{})
	r.mu.Unlock()

	<-ctx.Done()
	r.mu.Lock()
	delete(r.counts, shard) // a request that comes now goes to the next owner
	r.mu.Unlock()
	return nil
}

// ServeHTTP counts a visit of the key in the path.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	key := strings.TrimPrefix(req.URL.Path, "/")
	shard := locks.ShardOf(key, shards)

	known, _ := strconv.ParseUint(req.Header.Get(headerToken), 10, 64)
	answer, owner := r.find(ctx, key, shard, known)
	switch {
	case answer != "":
		fmt.Fprint(w, answer)
		return
	case owner.Token != 0 && known != 0:
		// The sender's map is stale. A request is never sent in circles: only the
		// process that was asked first forwards.
		w.Header().Set(headerOwner, owner.Meta[metaHTTP])
		w.Header().Set(headerToken, fmt.Sprint(owner.Token))
		http.Error(w, fmt.Sprintf("shard %d has another owner", shard), http.StatusMisdirectedRequest)
		return
	}
	to, token := owner.Meta[metaHTTP], uint64(owner.Token)
	for hops := 1; to != ""; hops++ {
		reply, err := r.forward(ctx, req, to, token)
		if err != nil {
			// Not again: the owner may have counted the visit.
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if reply.StatusCode != http.StatusMisdirectedRequest {
			w.Header().Set(headerHops, strconv.Itoa(hops))
			w.WriteHeader(reply.StatusCode)
			_, _ = io.Copy(w, reply.Body)
			_ = reply.Body.Close()
			return
		}
		_ = reply.Body.Close()
		// A shard may have moved again meanwhile. Each answer must bring later news:
		// the request ends at the newest owner, and never goes in circles.
		later, _ := strconv.ParseUint(reply.Header.Get(headerToken), 10, 64)
		if later <= token {
			break
		}
		to, token = reply.Header.Get(headerOwner), later
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, fmt.Sprintf("shard %d has no owner now", shard), http.StatusServiceUnavailable)
}

// find waits until the shard has an owner, under the token known or a later one. If
// this process is the owner, find counts a visit of key and returns the answer. Both
// results are empty if ctx has ended.
func (r *router) find(ctx context.Context, key string, shard int, known uint64) (answer string, owner locks.Owner) {
	for {
		changed := r.owners.Changed() // before the map is read, to miss nothing
		r.mu.Lock()
		begun := r.begun
		r.mu.Unlock()
		if answer, ok := r.count(key, shard); ok {
			return answer, locks.Owner{}
		}
		if o, ok := r.owners.Owner(shard); ok && !o.Self && uint64(o.Token) >= known {
			return "", o
		}
		// Nobody, or this process by a work that has ended or is about to begin.
		select {
		case <-changed:
		case <-begun:
		case <-ctx.Done():
			return "", locks.Owner{}
		}
	}
}

// awaitMoved waits until the map names this process as no shard's owner.
func (r *router) awaitMoved(ctx context.Context) {
	for shard := 0; shard < shards && ctx.Err() == nil; {
		changed := r.owners.Changed()
		if o, ok := r.owners.Owner(shard); !ok || !o.Self {
			shard++
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// count counts a visit of key; false if this process does not own the shard.
func (r *router) count(key string, shard int) (answer string, ok bool) {
	l, mine := r.owners.Mine(shard)
	if !mine {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts[shard]
	if counts == nil {
		return "", false
	}
	counts[key]++
	return fmt.Sprintf("visit %d of %q, counted by process %d, owner of shard %d under token %d\n",
		counts[key], key, os.Getpid(), shard, l.Token()), true
}

// forward sends the request to the process at the HTTP address to.
func (r *router) forward(ctx context.Context, req *http.Request, to string, token uint64) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, req.Method, "http://"+to+req.URL.RequestURI(), nil)
	if err != nil {
		return nil, err
	}
	out.Header.Set(headerToken, strconv.FormatUint(token, 10))
	return r.client.Do(out)
}
