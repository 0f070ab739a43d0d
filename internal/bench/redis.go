package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

func redisThere() error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return errors.New("no redis-server (Debian's package redis-server)")
	}
	return nil
}

// redisRetry is how long a caller waits at most before it asks for a held key again, as
// Redis tells nobody of a key that was freed.
const redisRetry = 2 * time.Millisecond

// A redisServer is one Redis process that keeps its data in memory alone.
type redisServer struct {
	server *server
	client *redis.Client
	values atomic.Uint64

	proxies proxies

	release string // "7.0.15"
}

// startRedis starts Redis, with or without the delay of the setting delayed between the
// callers and the server.
func startRedis(late bool) func(ctx context.Context, dir string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) { return runRedis(ctx, dir, late) }
}

func runRedis(ctx context.Context, dir string, late bool) (system, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s, err := startServer(dir+"/log", "redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(ports[0]),
		"--save", "", "--appendonly", "no", "--dir", dir)
	if err != nil {
		return nil, err
	}
	r := &redisServer{server: s}
	addr := fmt.Sprint("127.0.0.1:", ports[0])
	if late {
		p, err := r.proxies.through(addr)
		if err != nil {
			return nil, errors.Join(err, stopServers([]*server{s}))
		}
		addr = p.addr()
	}
	r.client = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 256})
	for {
		err := r.client.Ping(ctx).Err()
		if err == nil {
			info, err := r.client.InfoMap(ctx, "server").Result()
			r.release = info["Server"]["redis_version"]
			if err != nil {
				err = errors.Join(err, r.stop())
			}
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, r.stop())
		case <-s.done:
			return nil, errors.Join(fmt.Errorf("redis-server ended: see %s/log", dir), r.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *redisServer) caller(_ context.Context, at place, _ int, _ bool) (caller, error) {
	if at != everywhere {
		return nil, errNotHad
	}
	return redisCaller{r}, nil
}

func (r *redisServer) entries() uint64 { return 0 }
func (r *redisServer) pids() []int     { return []int{r.server.pid()} }
func (r *redisServer) version() string { return r.release + ", go-redis " + redis.Version() }

func (r *redisServer) stop() error {
	return errors.Join(r.client.Close(), stopServers([]*server{r.server}), r.proxies.close())
}

// deleteIfMine frees a key that has the caller's value.
var deleteIfMine = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

type redisCaller struct{ r *redisServer }

func (c redisCaller) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	value := strconv.FormatUint(c.r.values.Add(1), 10)
	for {
		ok, err := c.r.client.SetNX(ctx, key, value, etcdTTL*time.Second).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func(ctx context.Context) error {
				return deleteIfMine.Run(ctx, c.r.client, []string{key}, value).Err()
			}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rand.N(redisRetry)):
		}
	}
}
