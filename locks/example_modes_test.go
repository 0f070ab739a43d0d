package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Several readers share a key. One reader becomes the writer, and no other
// writer comes in between.
func ExampleLock_Upgrade() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	one, err := client.Acquire(ctx, "prices", locks.Shared())
	if err != nil {
		log.Fatal(err)
	}
	two, err := client.Acquire(ctx, "prices", locks.Shared())
	if err != nil {
		log.Fatal(err)
	}
	upgraded := make(chan error)
	read := one.Token()
	go func() { upgraded <- one.Upgrade(ctx) }() // waits for the other reader
	<-two.Contended()
	fmt.Println("release:", two.Release(ctx))
	fmt.Println("upgrade:", <-upgraded)
	fmt.Println("a new token:", one.Token() > read)
	fmt.Println("release:", one.Release(ctx))
	// Output:
	// release: <nil>
	// upgrade: <nil>
	// a new token: true
	// release: <nil>
}

// Several keys are granted at once or not at all, so that two callers never
// wait for each other, even if they name the keys in different orders.
func ExampleClient_AcquireAll() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	accounts, err := client.AcquireAll(ctx, []string{"account/7", "account/3"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(accounts.Keys())
	_, err = client.TryAcquire(ctx, "account/7")
	fmt.Println("free:", !errors.Is(err, locks.ErrHeld))
	fmt.Println("release:", accounts.Release(ctx))
	// Output:
	// [account/3 account/7]
	// free: false
	// release: <nil>
}

// A function that holds a lock may call another function that locks the same
// key, if both name the same owner.
func ExampleReentrant() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	owner := locks.Reentrant("request 42")
	err := client.Do(ctx, "cart", func(ctx context.Context, outer *locks.Lock) error {
		return client.Do(ctx, "cart", func(ctx context.Context, inner *locks.Lock) error {
			fmt.Println("depth:", inner.Depth(), "same token:", inner.Token() == outer.Token())
			return nil
		}, owner)
	}, owner)
	fmt.Println(err)
	// Output:
	// depth: 2 same token: true
	// <nil>
}

// A wait without an end is refused instead. The context tells the cluster of
// the caller's first lock.
func ExampleDeadlockError() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "clerk"})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "ledger")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Acquire(lock.Context(), "ledger")
	var dead *locks.DeadlockError
	if errors.As(err, &dead) {
		for _, w := range dead.Cycle {
			fmt.Println(w.Client, "waits for", w.Key, "and holds the key:", w.Token == lock.Token())
		}
	}
	// Output:
	// clerk waits for ledger and holds the key: true
}

// A leader may name the next leader, and then stands again behind the named
// leader.
func ExampleResign() {
	ctx, cancel := context.WithCancel(context.Background())
	node := alone()
	tokyo := locks.New(node, locks.Options{Name: "tokyo"})
	defer tokyo.Close(context.Background())
	lima := locks.New(node, locks.Options{Name: "lima"})
	defer lima.Close(context.Background())

	elected := make(chan struct{})
	go func() {
		<-elected
		_ = lima.Elect(ctx, "shift", func(ctx context.Context, l *locks.Lock) error {
			fmt.Println("lima leads")
			cancel()
			return nil
		})
	}()
	_ = tokyo.Elect(ctx, "shift", func(ctx context.Context, l *locks.Lock) error {
		fmt.Println("tokyo leads")
		close(elected)
		select {
		case <-l.Contended(): // another client stands for election
			return locks.Resign("lima")
		case <-time.After(time.Minute):
			return nil
		}
	})
	// Output:
	// tokyo leads
	// lima leads
}
