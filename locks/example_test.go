package locks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// alone returns the only member of a cluster on loopback. All examples share
// the member, since founding a cluster takes a TTL.
var alone = sync.OnceValue(func() *cluster.Node {
	node, err := cluster.Start(context.Background(), cluster.Config{InitialSize: 1, TTL: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	stopAlone = node.Stop
	return node
})

var stopAlone = func() error { return nil } // if no example ran

// TestMain runs the tests on one thread. A bubble's clock advances only while all of
// its goroutines are blocked, so a second thread saves no time and costs 1.4 times
// the CPU. With two threads the race detector crashes as well, see
// golang.org/issue/78156.
func TestMain(m *testing.M) {
	if d, err := time.ParseDuration(os.Getenv(envBusy)); err == nil {
		burn(d)
		return
	}
	if join := os.Getenv(envNoisy); join != "" {
		if err := noisyMember(join, os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" { // benchmarks need no bubble
		runtime.GOMAXPROCS(1)
		testrounds.CollectRarely()
	}
	status := m.Run()
	if err := stopAlone(); err != nil {
		log.Print(err)
	}
	os.Exit(status)
}

// Do runs a job on one process at a time, with rising tokens.
func ExampleClient_Do() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "billing"})
	defer client.Close(ctx)

	err := client.Do(ctx, "nightly-report", func(ctx context.Context, l *locks.Lock) error {
		// ctx ends when the lock can no longer be trusted, and has the lock's
		// token.
		token, _ := fence.FromContext(ctx)
		fmt.Println(l.Key(), token == l.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// nightly-report true
	// <nil>
}

// Before each side effect, ask the lock for the duration of the effect.
func ExampleLock_Require() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "printer")
	if err != nil {
		log.Fatal(err)
	}
	var budget *locks.BudgetError
	fmt.Println("100ms:", lock.Require(100*time.Millisecond))
	fmt.Println("a minute:", errors.As(lock.Require(time.Minute), &budget))
	fmt.Println("released:", lock.Release(ctx))
	fmt.Println("after that:", errors.Is(lock.Err(), locks.ErrReleased), context.Cause(lock.Context()) != nil)
	// Output:
	// 100ms: <nil>
	// a minute: true
	// released: <nil>
	// after that: true true
}

// TryAcquire does not wait, and names the holder.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	node := alone()
	ann := locks.New(node, locks.Options{Name: "ann"})
	defer ann.Close(ctx)
	ben := locks.New(node, locks.Options{Name: "ben"})
	defer ben.Close(ctx)

	if _, err := ann.Acquire(ctx, "printer"); err != nil {
		log.Fatal(err)
	}
	_, err := ben.TryAcquire(ctx, "printer")
	var held *locks.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Client)
	}
	// Output: held by ann
}

// Elect runs lead for one caller at a time. Here each caller leads once, and
// steps down for good by returning an error of Final.
func ExampleClient_Elect() {
	ctx := context.Background()
	node := alone()

	errDone := errors.New("had my turn")
	var candidates sync.WaitGroup
	var term fence.Token
	for range 2 {
		candidates.Go(func() {
			client := locks.New(node, locks.Options{})
			defer client.Close(ctx)
			err := client.Elect(ctx, "scheduler", func(ctx context.Context, l *locks.Lock) error {
				// No mutex guards term: leaders never overlap.
				fmt.Println("leading, in a later term:", l.Token() > term)
				term = l.Token()
				return locks.Final(errDone) // any other error: Elect stands again
			})
			if !errors.Is(err, errDone) {
				log.Print(err)
			}
		})
	}
	candidates.Wait()
	// Output:
	// leading, in a later term: true
	// leading, in a later term: true
}

// Spread gives each shard one writer at a time.
func ExampleClient_Spread() {
	ctx, stop := context.WithCancel(context.Background())
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(context.Background())

	var mine sync.WaitGroup
	mine.Add(4)
	go func() { mine.Wait(); stop() }()
	err := client.Spread(ctx, "orders", 4, func(ctx context.Context, shard int, l *locks.Lock) error {
		mine.Done()
		<-ctx.Done() // work on the shard until it moves to another caller
		return nil
	})
	fmt.Println("all four were ours:", errors.Is(err, context.Canceled))
	// Output: all four were ours: true
}

// Watch yields every change of a key, also when the key becomes vacant.
func ExampleClient_Watch() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "ann"})
	defer client.Close(ctx)

	for status, err := range client.Watch(ctx, "printer") {
		if err != nil {
			log.Fatal(err)
		}
		if !status.Held() {
			fmt.Println("free")
			if _, err := client.Acquire(ctx, "printer"); err != nil {
				log.Fatal(err)
			}
			continue
		}
		fmt.Println("held by", status.Holders[0].Client)
		break
	}
	// Output:
	// free
	// held by ann
}
