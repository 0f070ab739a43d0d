// Command scheduler elects a leader among several processes. The elected process
// runs a job each second. Start the program in a terminal, and then in other
// terminals with the printed command:
//
//	go run ./examples/scheduler
//	go run ./examples/scheduler -join 127.0.0.1:PORT
//
// Press Ctrl-C in the terminal of the elected process: another process is elected
// at once. After kill -9 the election takes the TTL of 5 s. It also needs three
// voters before the kill, because a majority must survive: start three terminals
// and wait a few seconds.
package main

import (
	"context"
	"flag"
	"log"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	join := flag.String("join", "", "host:port of any member; if empty, found a cluster")
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
	if err := wardmote.Main(cfg, run); err != nil {
		log.Fatal(err)
	}
}

// run ends with Ctrl-C. Main then releases the lock and ends this member's vote, so
// that no other process waits for a TTL.
func run(ctx context.Context, client *locks.Client) error {
	node := client.Node()
	log.Printf("%s. In other terminals: go run ./examples/scheduler -join %s", node.Name(), node.Addr())
	return client.Elect(ctx, "scheduler", lead)
}

// lead runs in one process at a time, until ctx ends. ctx ends before another
// process is elected.
func lead(ctx context.Context, l *locks.Lock) error {
	log.Printf("elected, token %d", l.Token())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			log.Printf("no longer elected: %v", context.Cause(ctx))
			return nil // Elect tries again, unless the program ends
		case <-tick.C:
			// After a pause of this process both cases are ready, so ask Err,
			// which is right at once. If the job writes, it must also show
			// the token to the resource: see examples/ledger.
			if l.Err() != nil {
				continue
			}
			log.Printf("job %d under token %d", n, l.Token())
		}
	}
}
