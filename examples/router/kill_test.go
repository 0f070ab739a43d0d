package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// election bounds the time from the death of a leader to the first entry of the next.
const election = 3 * time.Second

// The process that owns shards and leads the cluster is killed: its keys are answered
// again within an election and a TTL, and then every process knows each owner, or is
// corrected in one hop. A whole run only: the TTL is real time.
func TestAKilledOwnersKeysAreAnsweredAgain(t *testing.T) {
	for range testrounds.Rounds(0, 2) {
		killAnOwner(t)
	}
}

func killAnOwner(t *testing.T) {
	first := startRouter(t, "")
	processes := []*process{first, startRouter(t, first.join), startRouter(t, first.join)}
	owners, victim := observe(t, first.join, processes)

	var keys []string // of the victim's shards
	for i := 0; len(keys) < 10; i++ {
		key := fmt.Sprint("key-", i)
		if o, ok := owners.Owner(locks.ShardOf(key, shards)); ok && o.Meta[metaHTTP] == victim.http {
			keys = append(keys, key)
		}
	}
	var living []*process
	for _, p := range processes {
		if p != victim {
			living = append(living, p)
		}
	}
	stalls := testrounds.WatchStalls(nil)
	defer stalls.Stop()
	killed := time.Now()
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, living[0], keys)
	gap := time.Since(killed)
	hops := make(map[string]int)
	for _, p := range living {
		for i := range 100 {
			status, n, answer, err := p.visit(fmt.Sprint("key-", i))
			if err != nil || status != http.StatusOK {
				t.Errorf("after the gap: %d %v %s", status, err, answer)
			}
			hops[n]++
		}
	}
	t.Logf("the keys of the killed process were answered again after %v; then by hops: %v; longest standstill %v", gap, hops, stalls.Since(killed))
	if limit := ttl + election; gap > limit && stalls.Since(killed) < testrounds.Void {
		t.Errorf("the keys of the killed process were answered again after %v, not within %v", gap, limit)
	}
}

// observe joins the cluster, waits until each process owns shards and three members
// vote, and returns a map and the process that leads, or the last one if the observer
// leads.
func observe(t *testing.T, join string, processes []*process) (*locks.Shards, *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	node, err := cluster.Start(ctx, cluster.Config{TTL: ttl, Join: []string{join}, Events: func(context.Context, cluster.Event) { wake() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Stop() })
	client := locks.New(node, locks.Options{})
	t.Cleanup(func() {
		bye, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Close(bye)
	})
	following, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	owners, err := client.Shards(following, name)
	if err != nil {
		t.Fatal(err)
	}
	for {
		moved := owners.Changed()
		nodes := make(map[string]string) // by HTTP address
		owned := 0
		for shard := range shards {
			if o, ok := owners.Owner(shard); ok {
				nodes[o.Meta[metaHTTP]] = o.Node
				owned++
			}
		}
		voters := 0
		for _, m := range node.Members() {
			if m.Voter {
				voters++
			}
		}
		if leader, known := node.Leader(); known && len(nodes) == len(processes) && owned == shards && voters >= 3 {
			for _, p := range processes {
				if nodes[p.http] == leader.Name {
					return owners, p
				}
			}
			return owners, processes[len(processes)-1]
		}
		select {
		case <-moved:
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d voters, %d owners of %d shards", voters, len(nodes), owned)
		}
	}
}
