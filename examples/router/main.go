// Command router counts the visits of keys, with a single writer for each key and
// without a database: keys are divided into 64 shards, each process owns some of them,
// and any process answers for any key. Start the program in three terminals, with the
// printed command, and ask any of them:
//
//	go run ./examples/router
//	go run ./examples/router -join 127.0.0.1:PORT
//	curl http://127.0.0.1:PORT/any/key
//
// A process serves the keys of its own shards, and forwards the others to their owners.
// It knows the owners by heart: locks.Shards is kept current by pushes, and no request
// asks the cluster. A map may be some milliseconds behind; then the process that is
// asked for a shard that it does not own names the owner in its answer, and the request
// is forwarded there. Stop processes with Ctrl-C or kill -9, start others, and keep
// asking.
//
// http://127.0.0.1:PORT/wardmote/ is a page about the cluster, for browsers on this host;
// /wardmote/readyz and /wardmote/metrics are for an orchestrator and a monitoring system.
//
// The counts live in the memory of the owner, and begin anew when a shard moves. A real
// program would load a shard's state where own begins, and use l.Token with each write.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

const (
	name   = "visits"
	shards = 64
	ttl    = 3 * time.Second
	lag    = 200 * time.Millisecond // by which the map of another process may be behind
)

func main() {
	join := flag.String("join", "", "host:port of any member; if empty, found a cluster")
	listen := flag.String("http", "127.0.0.1:0", "host:port for HTTP")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	cfg := cluster.Config{TTL: ttl}
	if *join == "" {
		cfg.InitialSize = 1 // the others only join: a second founder would make a second cluster
	} else {
		cfg.Join = []string{*join}
	}
	err = wardmote.Main(cfg, func(ctx context.Context, c *locks.Client) error { return run(ctx, c.Node(), listener) })
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node *cluster.Node, listener net.Listener) error {
	// The other processes find this one's HTTP address with its shards.
	address := listener.Addr().String()
	client := locks.New(node, locks.Options{Meta: map[string]string{metaHTTP: address}})
	defer client.Close(context.Background())
	log.Printf("http://%s/any/key. In other terminals: go run ./examples/router -join %s", address, node.Addr())
	log.Printf("the cluster: http://%s/wardmote/", address)
	err := route(ctx, client, listener)
	if ctx.Err() != nil {
		err = nil // Ctrl-C is the normal end
	}
	return err
}

// route owns shards and serves HTTP until ctx ends.
func route(ctx context.Context, client *locks.Client, listener net.Listener) error {
	// The map outlives ctx: this process still forwards while it gives up its shards.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	owners, err := client.Shards(following, name)
	if err != nil {
		return err
	}
	r := newRouter(owners)
	watching, endWatching := context.WithCancel(context.Background())
	defer endWatching()
	server := &http.Server{Handler: withPage(watching, client, r), ReadHeaderTimeout: time.Second}
	server.RegisterOnShutdown(endWatching) // streams of events end with the server
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()

	// The shards go first. Other processes may send requests for them for a moment, until
	// their maps know: this process then names the next owners.
	err = client.Spread(ctx, name, shards, r.own)
	bye, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r.awaitMoved(bye)
	select {
	case <-time.After(lag):
	case <-served:
	}
	err = errors.Join(err, server.Shutdown(bye))
	return err
}
