package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

type wardmoteOptions struct {
	class class
	late  bool // see delayed
}

// A wardmoteCluster is three voting members and a thin one, in this process, over
// loopback.
type wardmoteCluster struct {
	nodes   []*cluster.Node // the last is thin
	clients []*locks.Client
	proxies proxies
}

func startWardmote(o wardmoteOptions) func(ctx context.Context, dir string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) {
		w := new(wardmoteCluster)
		var join []string
		for i := range 4 {
			cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: join}
			if i < 3 {
				cfg.InitialSize = 3
			} else {
				cfg.Voting.Thin = true
			}
			cfg.Voting.Voters = 3
			if o.late {
				cfg.Network = lateNetwork{&w.proxies}
			}
			if o.class != memory && i < 3 {
				cfg.Dir = filepath.Join(dir, cfg.Name)
			}
			if o.class == boot && i < 3 {
				cfg.Voting.Sync = cluster.SyncBoot
			}
			n, err := cluster.Start(ctx, cfg)
			if err != nil {
				return nil, errors.Join(err, w.stop())
			}
			w.nodes = append(w.nodes, n)
			join = []string{w.nodes[0].Addr()}
		}
		for _, n := range w.nodes {
			if err := n.Ready(ctx); err != nil {
				return nil, errors.Join(err, w.stop())
			}
			w.clients = append(w.clients, locks.New(n, locks.Options{}))
		}
		return w, nil
	}
}

// client returns the client of caller i. Goroutines of one client contend like clients.
func (w *wardmoteCluster) client(at place, i int) (*locks.Client, error) {
	switch at {
	case everywhere:
		return w.clients[i%3], nil
	case atThin:
		return w.clients[3], nil
	}
	for j, n := range w.nodes[:3] {
		if l, ok := n.Leader(); ok && l.Self == (at == atLeader) {
			return w.clients[j], nil
		}
	}
	return nil, errors.New("no member leads")
}

func (w *wardmoteCluster) caller(_ context.Context, at place, i int, _ bool) (caller, error) {
	c, err := w.client(at, i)
	return wardmoteCaller{c}, err
}

// entries counts the log's entries, those of raft itself included.
func (w *wardmoteCluster) entries() uint64 {
	var most uint64
	for _, n := range w.nodes[:3] {
		if r := n.Report().Raft; r != nil {
			most = max(most, r.Commit)
		}
	}
	return most
}

// hold has clients of the second member hold n keys. end waits until the last of them is
// free.
func (w *wardmoteCluster) hold(ctx context.Context, n int) (func(context.Context) error, error) {
	clients, err := fill(ctx, w.nodes[1], "held-", n)
	if err != nil {
		return nil, errors.Join(err, closeAll(ctx, clients))
	}
	return func(ctx context.Context) error {
		closing := closeAll(ctx, clients) // may say that nobody confirmed in time: the last key tells
		l, err := w.clients[0].Acquire(ctx, heldKey("held-", n-1))
		if err != nil {
			return errors.Join(closing, err)
		}
		return l.Release(ctx)
	}, nil
}

func (w *wardmoteCluster) pids() []int     { return nil }
func (w *wardmoteCluster) version() string { return "this tree" }

func (w *wardmoteCluster) stop() error {
	var wg sync.WaitGroup
	for _, c := range w.clients {
		wg.Go(func() { c.Close(context.Background()) })
	}
	wg.Wait()
	errs := make([]error, len(w.nodes))
	for i, n := range w.nodes {
		wg.Go(func() { errs[i] = n.Stop() })
	}
	wg.Wait()
	return errors.Join(append(errs, w.proxies.close())...)
}

type wardmoteCaller struct{ c *locks.Client }

func (w wardmoteCaller) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	l, err := w.c.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (w wardmoteCaller) acquireShared(ctx context.Context, key string, writer bool) (func(context.Context) error, error) {
	if writer {
		return w.acquire(ctx, key)
	}
	l, err := w.c.Acquire(ctx, key, locks.Shared())
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (w wardmoteCaller) acquireLazy(ctx context.Context, key string) (func(context.Context) error, error) {
	l, err := w.c.Acquire(ctx, key, locks.Lazy())
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (w wardmoteCaller) acquireSticky(ctx context.Context, key string) (func(context.Context) error, error) {
	l, err := w.c.Acquire(ctx, key, locks.Sticky())
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (w wardmoteCaller) acquireAll(ctx context.Context, keys []string) (func(context.Context) error, error) {
	s, err := w.c.AcquireAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	return s.Release, nil
}
