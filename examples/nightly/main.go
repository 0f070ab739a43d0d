// Command nightly is the first program of the README: a job that one process at a
// time runs. Start three processes and see them take turns:
//
//	BIND=127.0.0.1:7001 PEERS="127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003" go run ./examples/nightly
//
// Start the other two with 7002 and 7003 in BIND, within a minute or so. The
// processes wait for each other, and then found the cluster.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// PEERS: the host:port of any members; InitialSize: how many are started first.
	node, err := cluster.Start(ctx, cluster.Config{
		Bind: os.Getenv("BIND"), Join: strings.Fields(os.Getenv("PEERS")), InitialSize: 3,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Stop()

	client := locks.New(node, locks.Options{})
	defer client.Close(context.Background())

	err = client.Do(ctx, "nightly-report", func(ctx context.Context, l *locks.Lock) error {
		log.Printf("mine, under token %d", l.Token())
		return nil // ctx ends as soon as the lock can no longer be trusted
	})
	log.Println("done:", err)
}
