package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/wardmote/wardmote/locks"
)

// A map of the owners routes a request to the process that owns the key's shard.
func ExampleClient_Shards() {
	ctx, stop := context.WithCancel(context.Background())
	node := alone()
	client := locks.New(node, locks.Options{
		Name: "ann",
		Meta: map[string]string{"http": "10.0.0.7:8080"}, // for the other processes
	})
	defer client.Close(context.Background())

	var works, spread sync.WaitGroup
	works.Add(8)
	spread.Go(func() {
		_ = client.Spread(ctx, "carts", 8, func(ctx context.Context, shard int, l *locks.Lock) error {
			works.Done()
			<-ctx.Done()
			return nil
		})
	})
	works.Wait()

	owners, err := client.Shards(ctx, "carts") // once per process: the map is kept current
	if err != nil {
		log.Fatal(err)
	}
	shard := locks.ShardOf("customer-7", owners.Len())
	owner, ok := owners.Owner(shard)
	fmt.Println("shard", shard, "is", owner.Client+"'s:", ok, owner.Meta["http"])
	if l, mine := owners.Mine(shard); mine {
		// This process serves the request itself, and writes under the lock's token.
		fmt.Println("served here:", l.Err() == nil && l.Token() == owner.Token)
	}
	stop()
	spread.Wait()
	// Output:
	// shard 1 is ann's: true 10.0.0.7:8080
	// served here: true
}

// A program changes its number of shards without an overlap: the works of the old number
// end, then the works of the new number begin.
func ExampleClient_Resize() {
	ctx, stop := context.WithCancel(context.Background())
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(context.Background())

	works := make(chan int) // each sends its number of shards
	var spread sync.WaitGroup
	spread.Go(func() {
		// Every process of the program has this loop.
		for number := 2; ; {
			err := client.Spread(ctx, "baskets", number, func(ctx context.Context, _ int, _ *locks.Lock) error {
				works <- number
				<-ctx.Done()
				return nil
			})
			var other *locks.ShardsError
			if !errors.As(err, &other) {
				return // ctx has ended
			}
			number = other.Have
		}
	})
	fmt.Println("works of", <-works, "and", <-works, "shards")
	// One process, once: an operator's command, for example.
	resized := make(chan error, 1)
	go func() { resized <- client.Resize(ctx, "baskets", 2, 3) }()
	fmt.Println("works of", <-works, <-works, "and", <-works, "shards")
	fmt.Println("resized:", <-resized)
	stop()
	spread.Wait()
	// Output:
	// works of 2 and 2 shards
	// works of 3 3 and 3 shards
	// resized: <nil>
}
