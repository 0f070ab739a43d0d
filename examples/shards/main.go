// Command shards divides 16 shards among several processes, so that each shard has
// one owner: its single writer. Start it in one terminal, and then in others with
// the command that it prints:
//
//	go run ./examples/shards
//	go run ./examples/shards -join 127.0.0.1:PORT
//
// The first owns all 16. As others come shards move to them, no more than needed,
// and when one leaves with Ctrl-C they move back at once. With kill -9 it takes
// the TTL of 5 s, and there must be three voters before, which a third terminal
// makes after some ten seconds: a majority must survive.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	join := flag.String("join", "", "host:port of any member; without it, found a cluster")
	flag.Parse()
	if err := run(*join); err != nil {
		log.Fatal(err)
	}
}

func run(join string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg := cluster.Config{
		TTL:    5 * time.Second,
		Events: func(e cluster.Event) { log.Print(e) },
	}
	if join == "" {
		cfg.InitialSize = 1 // alone; the others only join, or there would be two clusters
	} else {
		cfg.Join = []string{join}
	}
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	log.Printf("%s. In other terminals: go run ./examples/shards -join %s", node.Name(), node.Addr())

	client := locks.New(node, locks.Options{})
	err = client.Spread(ctx, "orders", 16, own)
	if ctx.Err() != nil {
		err = nil // Ctrl-C is how it ends
	}
	bye, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.Close(bye), node.Leave(bye))
}

var owned atomic.Int32

// own runs for each shard of this process. What must be written by one process
// only, such as the shard's part of a queue or a file, is written here. Others get
// the shard when own has returned, so it should return soon after ctx ended.
func own(ctx context.Context, shard int, l *locks.Lock) error {
	log.Printf("shard %2d: ours, token %d; %d in all", shard, l.Token(), owned.Add(1))
	<-ctx.Done() // here goes the work
	log.Printf("shard %2d: given up: %v; %d left", shard, context.Cause(ctx), owned.Add(-1))
	return nil
}
