package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdTTL is the sessions' lease, in seconds: wardmote's default TTL.
const etcdTTL = 10

// An etcdCluster is three etcd members in this process, over loopback.
type etcdCluster struct {
	members []*embed.Etcd
	clients []*clientv3.Client
	proxies proxies

	mu       sync.Mutex
	sessions map[int]*concurrency.Session // of callers that contend, and -1-i of member i
}

// startEtcd starts etcd, with or without the delay of the setting delayed.
func startEtcd(late bool) func(ctx context.Context, dir string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) { return embedEtcd(ctx, dir, late) }
}

func embedEtcd(ctx context.Context, dir string, late bool) (system, error) {
	e := &etcdCluster{sessions: make(map[int]*concurrency.Session)}
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	at := func(i int) url.URL { return url.URL{Scheme: "http", Host: fmt.Sprint("127.0.0.1:", ports[i])} }
	var initial []string
	var advertised []url.URL // of the peers
	for i := range 3 {
		u := at(i)
		if late {
			p, err := e.proxies.through(u.Host)
			if err != nil {
				return nil, errors.Join(err, e.stop())
			}
			u.Host = p.addr()
		}
		advertised = append(advertised, u)
		initial = append(initial, fmt.Sprintf("m%d=%s", i, u.String()))
	}
	for i := range 3 {
		cfg := embed.NewConfig()
		cfg.Name = fmt.Sprint("m", i)
		cfg.Dir = filepath.Join(dir, cfg.Name)
		cfg.LogLevel = "panic"
		cfg.LogOutputs = []string{"/dev/null"}
		cfg.ListenPeerUrls = []url.URL{at(i)}
		cfg.AdvertisePeerUrls = advertised[i : i+1]
		cfg.ListenClientUrls = []url.URL{at(3 + i)}
		cfg.AdvertiseClientUrls = cfg.ListenClientUrls
		cfg.InitialCluster = strings.Join(initial, ",")
		m, err := embed.StartEtcd(cfg)
		if err != nil {
			return nil, errors.Join(err, e.stop())
		}
		e.members = append(e.members, m)
	}
	for i, m := range e.members {
		select {
		case <-m.Server.ReadyNotify():
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), e.stop())
		}
		u := at(3 + i)
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{u.Host}})
		if err != nil {
			return nil, errors.Join(err, e.stop())
		}
		e.clients = append(e.clients, c)
	}
	return e, nil
}

// member returns the number of the member that caller i is connected to.
func (e *etcdCluster) member(at place, i int) (int, error) {
	switch at {
	case everywhere:
		return i % 3, nil
	case atThin:
		return 0, errNotHad
	}
	for j, m := range e.members {
		if (m.Server.Leader() == m.Server.MemberID()) == (at == atLeader) {
			return j, nil
		}
	}
	return 0, errors.New("no member leads")
}

// caller returns a caller on the session of its member. etcd's Mutex does not keep
// goroutines of one session apart, so callers that contend have a session each.
func (e *etcdCluster) caller(ctx context.Context, at place, i int, contends bool) (caller, error) {
	m, err := e.member(at, i)
	if err != nil {
		return nil, err
	}
	id := i
	if !contends {
		id = -1 - m
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[id]
	if s == nil {
		s, err = concurrency.NewSession(e.clients[m], concurrency.WithTTL(etcdTTL))
		if err != nil {
			return nil, err
		}
		e.sessions[id] = s
	}
	return etcdCaller{s}, nil
}

func (e *etcdCluster) entries() uint64 {
	var most uint64
	for _, m := range e.members {
		most = max(most, m.Server.CommittedIndex())
	}
	return most
}

func (e *etcdCluster) pids() []int     { return nil }
func (e *etcdCluster) version() string { return moduleVersion("go.etcd.io/etcd/server/v3") }

func (e *etcdCluster) stop() error {
	var errs []error
	for _, c := range e.clients {
		errs = append(errs, c.Close())
	}
	var wg sync.WaitGroup
	for _, m := range e.members {
		wg.Go(m.Close)
	}
	wg.Wait()
	return errors.Join(append(errs, e.proxies.close())...)
}

type etcdCaller struct{ s *concurrency.Session }

func (e etcdCaller) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(e.s, "/bench/"+key)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}
