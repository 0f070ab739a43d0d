package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/locks"
)

// Ask asks the holder to release the key; the holder decides.
func ExampleClient_Ask() {
	ctx := context.Background()
	node := alone()
	ann := locks.New(node, locks.Options{})
	defer ann.Close(ctx)
	ben := locks.New(node, locks.Options{})
	defer ben.Close(ctx)

	lock, err := ann.Acquire(ctx, "meeting-room")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ben asks:", ben.Ask(ctx, "meeting-room"))
	<-lock.Asked()
	fmt.Println("still ann's:", lock.Err() == nil)
	fmt.Println("ann leaves:", lock.Release(ctx))
	// Output:
	// ben asks: <nil>
	// still ann's: true
	// ann leaves: <nil>
}

// An operator takes a key from a holder that hangs. The holder is told first.
func ExampleClient_Break() {
	ctx := context.Background()
	node := alone()
	worker := locks.New(node, locks.Options{})
	defer worker.Close(ctx)
	operator := locks.New(node, locks.Options{})
	defer operator.Close(ctx)

	lock, err := worker.Acquire(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	status, err := operator.Inspect(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	// With the token, Break cannot hit the next grant by mistake.
	fmt.Println("break:", operator.Break(ctx, "import", status.Holders[0].Token))
	var lost *locks.LostError
	if errors.As(context.Cause(lock.Context()), &lost) {
		fmt.Println(lost.Key, "is lost:", lost.Reason == locks.Broken)
	}
	// Output:
	// break: <nil>
	// import is lost: true
}

// Inspect shows the holders and the waiters of a key.
func ExampleClient_Inspect() {
	ctx := context.Background()
	node := alone()
	ann := locks.New(node, locks.Options{Name: "ann"})
	defer ann.Close(ctx)
	ben := locks.New(node, locks.Options{Name: "ben"})
	defer ben.Close(ctx)

	lock, err := ann.Acquire(ctx, "printer")
	if err != nil {
		log.Fatal(err)
	}
	printed := make(chan error)
	go func() {
		printed <- ben.Do(ctx, "printer", func(context.Context, *locks.Lock) error { return nil })
	}()
	<-lock.Contended()
	status, err := ann.Inspect(ctx, "printer")
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range status.Holders {
		fmt.Println(h.Client, "holds the key,", h.Mode, h.Token == lock.Token())
	}
	for _, w := range status.Waiters {
		fmt.Println(w.Client, "waits for the key,", w.Mode)
	}
	fmt.Println("release:", lock.Release(ctx))
	fmt.Println("ben:", <-printed)
	// Output:
	// ann holds the key, exclusive true
	// ben waits for the key, exclusive
	// release: <nil>
	// ben: <nil>
}

// List shows all taken keys with a common prefix.
func ExampleClient_List() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "ann"})
	defer client.Close(ctx)

	for _, key := range []string{"room/7", "room/3", "car/1"} {
		if _, err := client.Acquire(ctx, key); err != nil {
			log.Fatal(err)
		}
	}
	for status, err := range client.List(ctx, "room/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.Key, "is", status.Holders[0].Client+"'s")
	}
	// Output:
	// room/3 is ann's
	// room/7 is ann's
}

// WatchPrefix lists the taken keys, and then follows the changes.
func ExampleClient_WatchPrefix() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "room/3")
	if err != nil {
		log.Fatal(err)
	}
	for status, err := range client.WatchPrefix(ctx, "room/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.Key, "taken:", status.Held())
		if !status.Held() {
			break
		}
		if err := lock.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// room/3 taken: true
	// room/3 taken: false
}

// Observe finds the leader, and each later leader.
func ExampleClient_Observe() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	node := alone()
	client := locks.New(node, locks.Options{Name: "ann"})
	defer client.Close(context.Background())

	address := locks.Meta(map[string]string{"address": "10.0.0.7:8080"})
	go client.Elect(ctx, "scheduler", func(ctx context.Context, l *locks.Lock) error {
		<-ctx.Done() // lead
		return nil
	}, address)

	var led bool
	for leader, err := range client.Observe(context.Background(), "scheduler") {
		switch {
		case err != nil:
			log.Fatal(err)
		case leader.Token != 0:
			fmt.Println(leader.Client, "leads at", leader.Meta["address"])
			led = true
			stop()
		case led:
			fmt.Println("nobody leads")
			return
		}
	}
	// Output:
	// ann leads at 10.0.0.7:8080
	// nobody leads
}

// Compare and set of a counter: with any number of concurrent buyers, no more
// items are sold than there are.
func ExampleClient_Cell() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	stock := client.Cell("stock/teapot")
	if err := stock.Update(ctx, func([]byte) []byte { return []byte("3") }); err != nil {
		log.Fatal(err)
	}
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for range 10 {
		buyers.Go(func() {
			var bought bool
			err := stock.Update(ctx, func(old []byte) []byte {
				n, _ := strconv.Atoi(string(old))
				if bought = n > 0; !bought {
					return old
				}
				return strconv.AppendInt(nil, int64(n-1), 10)
			})
			if err != nil {
				log.Print(err)
			} else if bought {
				sold.Add(1)
			}
		})
	}
	buyers.Wait()
	left, err := stock.Get(ctx)
	fmt.Printf("sold %d, left %s, %v\n", sold.Load(), left, err)
	// Output: sold 3, left 0, <nil>
}

// A message delivered twice is processed once, and each delivery gets the same
// answer.
func ExampleClient_Once() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	for _, order := range []string{"order 17", "order 18", "order 17"} {
		receipt, err := client.Once(ctx, "charge "+order, func(ctx context.Context) ([]byte, error) {
			fmt.Println("charging", order)
			return []byte("receipt of " + order), nil
		})
		if err != nil {
			log.Fatal(err) // on ErrUnfinished, find out whether the charge was made
		}
		fmt.Printf("%s\n", receipt)
	}
	// Output:
	// charging order 17
	// receipt of order 17
	// charging order 18
	// receipt of order 18
	// receipt of order 17
}

// All servers start at the same time and first migrate the schema: one server
// migrates, and the others wait for it.
func ExampleClient_Once_migration() {
	ctx := context.Background()
	node := alone()

	var servers sync.WaitGroup
	for range 3 {
		servers.Go(func() {
			client := locks.New(node, locks.Options{})
			defer client.Close(ctx)
			_, err := client.Once(ctx, "migrate to 42", func(ctx context.Context) ([]byte, error) {
				fmt.Println("migrating")
				return nil, nil
			})
			if err != nil {
				log.Print(err) // do not start: the schema may be missing
				return
			}
			fmt.Println("serving")
		})
	}
	servers.Wait()
	// Output:
	// migrating
	// serving
	// serving
	// serving
}
