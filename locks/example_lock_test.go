package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// The protected resource compares tokens, so that a former holder writes
// nothing, even before the former holder knows of the loss.
func ExampleLock_Token() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	var guard fence.Guard // beside the account
	balance := 100
	deposit := func(t fence.Token) error {
		return guard.Do(t, func() error { balance += 10; return nil })
	}

	first, err := client.Acquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first:", deposit(first.Token()))
	fmt.Println("release:", first.Release(ctx))
	second, err := client.Acquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("second:", deposit(second.Token()))
	// A late request of the first holder.
	fmt.Println("late:", errors.Is(deposit(first.Token()), fence.ErrStale))
	fmt.Println(balance)
	// Output:
	// first: <nil>
	// release: <nil>
	// second: <nil>
	// late: true
	// 120
}

// A holder leaves its progress with the key. The next holder reads the
// progress, and learns whether the holder before ended by itself.
func ExampleLock_SetValue() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	for _, page := range []string{"page 1", "page 2", "page 3"} {
		lock, err := client.Acquire(ctx, "page-import")
		if err != nil {
			log.Fatal(err)
		}
		before, clean := lock.Value()
		fmt.Printf("%q clean: %v\n", before, clean)
		if err := lock.SetValue(ctx, []byte(page)); err != nil {
			log.Fatal(err)
		}
		if page == "page 2" { // this holder fails in the middle
			err = client.Break(ctx, "page-import", lock.Token())
		} else {
			err = lock.Release(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// "" clean: true
	// "page 1" clean: true
	// "page 2" clean: false
}

// A holder chooses the next holder, here the last waiter.
func ExampleLock_HandOver() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "baton")
	if err != nil {
		log.Fatal(err)
	}
	var runners sync.WaitGroup
	for i, name := range []string{"ann", "ben"} {
		runners.Go(func() {
			runner := locks.New(node, locks.Options{Name: name})
			defer runner.Close(ctx)
			err := runner.Do(ctx, "baton", func(context.Context, *locks.Lock) error {
				fmt.Println(name, "runs")
				return nil
			})
			if err != nil {
				log.Print(err)
			}
		})
		queued(client, "baton", i+1)
	}
	if err := lock.HandOver(ctx, "ben"); err != nil {
		log.Fatal(err)
	}
	runners.Wait()
	// Output:
	// ben runs
	// ann runs
}

// A writer becomes a reader without releasing the key, and the waiting readers
// join it.
func ExampleLock_Downgrade() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	writer, err := client.Acquire(ctx, "prices")
	if err != nil {
		log.Fatal(err)
	}
	reads := make(chan error)
	go func() {
		_, err := client.Acquire(ctx, "prices", locks.Shared())
		reads <- err
	}()
	<-writer.Contended()
	fmt.Println("downgrade:", writer.Downgrade(ctx))
	fmt.Println("reader:", <-reads)
	fmt.Println("held on:", writer.Err() == nil)
	// Output:
	// downgrade: <nil>
	// reader: <nil>
	// held on: true
}

// A long job keeps its key until another client wants the key.
func ExampleLock_Contended() {
	ctx := context.Background()
	node := alone()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	lock, err := client.Acquire(ctx, "disk")
	if err != nil {
		log.Fatal(err)
	}
	other := make(chan error)
	go func() {
		_, err := client.Acquire(ctx, "disk")
		other <- err
	}()
	select {
	case <-lock.Contended():
		fmt.Println("somebody waits")
	case <-lock.Context().Done():
		fmt.Println("lost:", lock.Err())
	}
	fmt.Println("release:", lock.Release(ctx))
	fmt.Println("the other:", <-other)
	// Output:
	// somebody waits
	// release: <nil>
	// the other: <nil>
}
