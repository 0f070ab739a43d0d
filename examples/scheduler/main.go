// Command scheduler elects one of several processes, which runs a job each
// second. Start it in one terminal, and then in others with the command that it
// prints:
//
//	go run ./examples/scheduler
//	go run ./examples/scheduler -join 127.0.0.1:PORT
//
// One of them runs the job. Press Ctrl-C there, and another does at once. With
// kill -9 instead it takes the TTL of 5 s, and there must be three voters before,
// which a third terminal makes after some ten seconds: a majority must survive.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
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
	log.Printf("%s. In other terminals: go run ./examples/scheduler -join %s", node.Name(), node.Addr())

	client := locks.New(node, locks.Options{})
	err = client.Elect(ctx, "scheduler", lead)
	if ctx.Err() != nil {
		err = nil // Ctrl-C is how it ends
	}
	// Give back the lock, and then the place among the voters: nobody has to wait
	// for a TTL. If that cannot be done soon, the others manage by themselves.
	bye, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.Close(bye), node.Leave(bye))
}

// lead runs in one process at a time. It returns when ctx ends, which comes
// before anybody else is elected.
func lead(ctx context.Context, l *locks.Lock) error {
	log.Printf("elected, token %d", l.Token())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			log.Printf("no longer elected: %v", context.Cause(ctx))
			return nil // Elect stands again, if there is time
		case <-tick.C:
			// After a pause of this process both cases are ready. Err is right
			// at once. A job that writes shows the token there: see
			// examples/ledger.
			if l.Err() != nil {
				continue
			}
			log.Printf("job %d under token %d", n, l.Token())
		}
	}
}
