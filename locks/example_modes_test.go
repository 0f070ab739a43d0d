package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Many read a key together; one of them becomes its writer without anybody else
// coming between.
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

// Several keys are granted at once or not at all, so that no two callers wait for
// each other, whatever the order in which they name them.
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

// A function that locks may call another that locks the same key, if both say
// for whom.
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

// A wait that could never end is refused instead. Whoever holds a lock while it
// acquires another shows that by the context.
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
			fmt.Println(w.Client, "waits for", w.Key, "which it holds:", w.Token == lock.Token())
		}
	}
	// Output:
	// clerk waits for ledger which it holds: true
}

// A leader may say who shall follow it, and stands again behind that one.
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
		case <-l.Contended(): // somebody stands for election, too
			return locks.Resign("lima")
		case <-time.After(time.Minute):
			return nil
		}
	})
	// Output:
	// tokyo leads
	// lima leads
}
