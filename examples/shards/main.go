// Command shards divides 16 shards among several processes. Each shard has a single
// owner, and only the owner writes to the shard. Start the program in a terminal,
// and then in other terminals with the printed command:
//
//	go run ./examples/shards
//	go run ./examples/shards -join 127.0.0.1:PORT
//
// The first process owns all 16 shards. When a process joins, shards move to the
// new process, no more than needed, one at a time. When a process leaves with Ctrl-C,
// its shards move to the others at once. After kill -9 the move takes the TTL of 5 s.
// It also needs three voters before the kill, because a majority must survive: start
// three terminals and wait a few seconds.
//
// With -name, a process that is started again within 30 s finds its shards as it left
// them, and no shard moves:
//
//	go run ./examples/shards -join 127.0.0.1:PORT -name ann
package main

import (
	"context"
	"flag"
	"log"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	join := flag.String("join", "", "host:port of any member; if empty, found a cluster")
	name := flag.String("name", "", "stable name of this process; its shards wait for its return")
	flag.Parse()
	cfg := cluster.Config{
		TTL:    5 * time.Second,
		Events: func(_ context.Context, e cluster.Event) { log.Print(e) },
	}
	if *join == "" {
		cfg.InitialSize = 1 // the others only join: a second founder would make a second cluster
	} else {
		cfg.Join = []string{*join}
	}
	err := wardmote.Main(cfg, func(ctx context.Context, c *locks.Client) error { return run(ctx, c.Node(), *name) })
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node *cluster.Node, name string) error {
	log.Printf("%s. In other terminals: go run ./examples/shards -join %s", node.Name(), node.Addr())

	// A client of its own, for the options.
	client := locks.New(node, locks.Options{Name: name, Trace: &locks.Trace{Part: told}})
	defer client.Close(context.Background())
	options := []locks.SpreadOption{locks.Drain(time.Second)}
	if name != "" {
		options = append(options, locks.Grace(30*time.Second))
	}
	return client.Spread(ctx, "orders", 16, own, options...)
}

// told runs for each part that the leader assigns to this process.
func told(_ context.Context, p locks.PartEvent) {
	log.Printf("%d of %d shards are for this process", p.Mine, p.Shards)
}

var owned atomic.Int32

// own runs for each shard of this process. Here the program writes data with a
// single writer, such as the shard's part of a queue or a file. Another process
// gets the shard when own has returned, so own should return soon after ctx ends.
func own(ctx context.Context, shard int, l *locks.Lock) error {
	log.Printf("shard %2d: ours, token %d; %d in all", shard, l.Token(), owned.Add(1))
	select { // a real program works here
	case <-l.Asked():
		// The leader has told the shard to move. A real program takes no new work now, and ends what
		// is under way; it has the second of Drain for that.
	case <-ctx.Done():
	}
	log.Printf("shard %2d: given up; %d left", shard, owned.Add(-1))
	return nil
}
