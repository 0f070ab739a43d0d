// Command shards divides 16 shards among several processes. Each shard has a single
// owner, and only the owner writes to the shard. Start the program in a terminal,
// and then in other terminals with the printed command:
//
//	go run ./examples/shards
//	go run ./examples/shards -join 127.0.0.1:PORT
//
// The first process owns all 16 shards. When a process joins, shards move to the
// new process, no more than needed. When a process leaves with Ctrl-C, its shards
// move back at once. After kill -9 the move takes the TTL of 5 s. It also needs
// three voters before the kill, because a majority must survive: start three
// terminals and wait some ten seconds.
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
	join := flag.String("join", "", "host:port of any member; if empty, found a cluster")
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
		cfg.InitialSize = 1 // the others only join: a second founder would make a second cluster
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
		err = nil // Ctrl-C is the normal end
	}
	bye, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.Close(bye), node.Leave(bye))
}

var owned atomic.Int32

// own runs for each shard of this process. Here the program writes data with a
// single writer, such as the shard's part of a queue or a file. Another process
// gets the shard when own has returned, so own should return soon after ctx ends.
func own(ctx context.Context, shard int, l *locks.Lock) error {
	log.Printf("shard %2d: ours, token %d; %d in all", shard, l.Token(), owned.Add(1))
	<-ctx.Done() // a real program works here until ctx ends
	log.Printf("shard %2d: given up: %v; %d left", shard, context.Cause(ctx), owned.Add(-1))
	return nil
}
