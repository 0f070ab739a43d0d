package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// queued returns once n requests wait for key.
func queued(client *locks.Client, key string, n int) {
	for status, err := range client.Watch(context.Background(), key) {
		if err != nil {
			log.Fatal(err)
		}
		if status.Queue == n {
			return
		}
	}
}

// Readers share a key, and a writer holds the key alone.
func ExampleShared() {
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
	fmt.Println("both read:", one.Err() == nil && two.Err() == nil)
	_, err = client.TryAcquire(ctx, "prices")
	fmt.Println("a writer beside them:", !errors.Is(err, locks.ErrHeld))

	fmt.Println("release:", one.Release(ctx), two.Release(ctx))
	_, err = client.TryAcquire(ctx, "prices")
	fmt.Println("a writer after them:", err == nil)
	// Output:
	// both read: true
	// a writer beside them: false
	// release: <nil> <nil>
	// a writer after them: true
}

// A key as a semaphore: at most two processes of the whole cluster call a
// service with little capacity at a time.
func ExamplePermits() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	one, err := client.Acquire(ctx, "geocoder", locks.Permits(1, 2))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Acquire(ctx, "geocoder", locks.Permits(1, 2)); err != nil {
		log.Fatal(err)
	}
	_, err = client.TryAcquire(ctx, "geocoder", locks.Permits(1, 2))
	fmt.Println("a third:", !errors.Is(err, locks.ErrHeld))
	fmt.Println("release:", one.Release(ctx))
	_, err = client.TryAcquire(ctx, "geocoder", locks.Permits(1, 2))
	fmt.Println("a third:", err == nil)

	var other *locks.CapacityError
	_, err = client.TryAcquire(ctx, "geocoder", locks.Permits(1, 3))
	if errors.As(err, &other) {
		fmt.Println("all must agree on", other.Have)
	}
	// Output:
	// a third: false
	// release: <nil>
	// a third: true
	// all must agree on 2
}

// A semaphore whose size the cluster keeps: an operator changes it while it is in use.
// A big job takes three permits at once.
func ExampleClient_SetCapacity() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	if err := client.SetCapacity(ctx, "gpu", 4); err != nil {
		log.Fatal(err)
	}
	small, err := client.Acquire(ctx, "gpu", locks.Permits(1, 0)) // of as many as there are
	if err != nil {
		log.Fatal(err)
	}
	big, err := client.Acquire(ctx, "gpu", locks.Permits(3, 0))
	if err != nil {
		log.Fatal(err)
	}
	if err := client.SetCapacity(ctx, "gpu", 2); err != nil {
		log.Fatal(err)
	}
	status, err := client.Inspect(ctx, "gpu")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", status.Permits, "of", status.Capacity)
	var tooFew *locks.CapacityError
	if _, err := client.Acquire(ctx, "gpu", locks.Permits(3, 0)); errors.As(err, &tooFew) {
		fmt.Println("a big job no longer fits:", tooFew.N, "of", tooFew.Have)
	}
	fmt.Println("release:", big.Release(ctx), small.Release(ctx))
	_, err = client.TryAcquire(ctx, "gpu", locks.Permits(2, 0))
	fmt.Println("two at once:", err == nil)
	// Output:
	// held: 4 of 2
	// a big job no longer fits: 3 of 2
	// release: <nil> <nil>
	// two at once: true
}

// The holder of a tree holds everything below its key.
func ExampleTree() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "backup"})
	defer client.Close(ctx)

	if _, err := client.Acquire(ctx, "home/ann", locks.Tree()); err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"home/ann/mail", "home/ben/mail"} {
		_, err := client.TryAcquire(ctx, key)
		var held *locks.HeldError
		if errors.As(err, &held) {
			fmt.Println(key, "is part of", held.Conflict, "held by", held.Client)
		} else {
			fmt.Println(key, "is free:", err == nil)
		}
	}
	// Output:
	// home/ann/mail is part of home/ann held by backup
	// home/ben/mail is free: true
}

// A customer's request passes a report's request that came first. The holder is
// not disturbed.
func ExamplePriority() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "database")
	if err != nil {
		log.Fatal(err)
	}
	var waiters sync.WaitGroup
	wait := func(who string, priority int) {
		waiters.Go(func() {
			err := client.Do(ctx, "database", func(context.Context, *locks.Lock) error {
				fmt.Println(who)
				return nil
			}, locks.Priority(priority))
			if err != nil {
				log.Print(err)
			}
		})
	}
	wait("report", -10)
	queued(client, "database", 1)
	wait("customer", 10)
	queued(client, "database", 2)
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	waiters.Wait()
	// Output:
	// customer
	// report
}

// If this holder crashes, the key stays taken for another ten minutes, in which
// a payment already sent comes through. A release does not wait.
func ExampleDelay() {
	ctx := context.Background()
	node := alone()
	ann := locks.New(node, locks.Options{Name: "ann"})
	defer ann.Close(ctx)
	ben := locks.New(node, locks.Options{Name: "ben"})
	defer ben.Close(ctx)

	lock, err := ann.Acquire(ctx, "payments", locks.Delay(10*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	_, err = ben.TryAcquire(ctx, "payments")
	var held *locks.HeldError
	if errors.As(err, &held) {
		// Delayed would mean: ann is gone, and the ten minutes have begun.
		fmt.Println("held by", held.Client, "delayed:", held.Delayed)
	}
	fmt.Println("release:", lock.Release(ctx))
	_, err = ben.TryAcquire(ctx, "payments")
	fmt.Println("free at once:", err == nil)
	// Output:
	// held by ann delayed: false
	// release: <nil>
	// free at once: true
}

// Compare and set: read and think without a lock, and write only if the key was
// not granted since.
func ExampleIfToken() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	draft, err := client.Inspect(ctx, "article") // then read the article
	if err != nil {
		log.Fatal(err)
	}
	for _, editor := range []string{"ann", "ben"} { // both have read the same version
		lock, err := client.Acquire(ctx, "article", locks.IfToken(draft.Token))
		var changed *locks.ChangedError
		if errors.As(err, &changed) {
			fmt.Println(editor, "must read again, since it changed:", changed.Token > draft.Token)
			continue
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Println(editor, "saves")
		fmt.Println("release:", lock.Release(ctx))
	}
	// Output:
	// ann saves
	// release: <nil>
	// ben must read again, since it changed: true
}

// A request does not join a queue if the queue is too long.
func ExampleMaxWaiters() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "thumbnail")
	if err != nil {
		log.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := client.Acquire(ctx, "thumbnail", locks.MaxWaiters(1))
		waited <- err
	}()
	<-lock.Contended()
	_, err = client.Acquire(ctx, "thumbnail", locks.MaxWaiters(1))
	fmt.Println("no room for a second:", errors.Is(err, locks.ErrTooManyWaiters))
	fmt.Println("release:", lock.Release(ctx))
	fmt.Println("the first in line:", <-waited)
	// Output:
	// no room for a second: true
	// release: <nil>
	// the first in line: <nil>
}

// A holder shows data about itself to others.
func ExampleMeta() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{Name: "ann"})
	defer client.Close(ctx)

	_, err := client.Acquire(ctx, "deploy", locks.Meta(map[string]string{"ticket": "OPS-7"}))
	if err != nil {
		log.Fatal(err)
	}
	status, err := client.Inspect(ctx, "deploy")
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range status.Holders {
		fmt.Println(h.Client, "deploys for", h.Meta["ticket"])
	}
	// Output: ann deploys for OPS-7
}
