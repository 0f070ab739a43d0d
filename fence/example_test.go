package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/wardmote/wardmote/fence"
)

// A paused holder writes after its successor.
func ExampleGuard_Do() {
	var guard fence.Guard // protects balance
	balance := 100

	deposit := func(t fence.Token, amount int) error {
		return guard.Do(t, func() error {
			balance += amount
			return nil
		})
	}
	fmt.Println(deposit(7, 10))
	fmt.Println(deposit(9, 10)) // the next holder
	fmt.Println(deposit(9, 10)) // may write again
	fmt.Println(deposit(7, 10)) // the first holder wakes up
	fmt.Println(balance)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// fence: token 7 is stale: 9 has been seen
	// 130
}

// The new holder shows its token before the first read, so the value read stays
// true.
func ExampleGuard_Claim() {
	var guard fence.Guard
	balance := 100

	if err := guard.Claim(2); err != nil {
		log.Fatal(err)
	}
	read := balance

	// The old holder writes late. Without the claim the guard would admit the
	// write: nobody would have shown a higher token.
	err := guard.Do(1, func() error { balance = 150; return nil })
	fmt.Println(err)

	err = guard.Do(2, func() error { balance = read + 10; return nil })
	fmt.Println(err, balance)
	// Output:
	// fence: token 1 is stale: 2 has been seen
	// <nil> 110
}

// One access per grant: the guard refuses the same token a second time.
func ExampleGuard_DoOnce() {
	var guard fence.Guard
	send := func() error { fmt.Println("sent"); return nil }

	fmt.Println(guard.DoOnce(7, send))
	fmt.Println(guard.DoOnce(7, send))
	// Output:
	// sent
	// <nil>
	// fence: token 7 is spent: it has been seen
}

// The context of a lock carries the lock's token to the code that writes.
func ExampleFromContext() {
	save := func(ctx context.Context) {
		t, ok := fence.FromContext(ctx)
		fmt.Println(t, ok)
	}
	save(fence.NewContext(context.Background(), 7))
	save(context.Background())
	// Output:
	// 7 true
	// 0 false
}

// The mark outlives the process.
func ExampleFile() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ledger.fence")
	write := func() error { fmt.Println("written"); return nil }

	file, err := fence.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(file.Do(9, write))
	file.Close()

	// The process starts again, and an earlier holder's request arrives.
	file, err = fence.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	err = file.Do(7, write)
	fmt.Println(err)
	fmt.Println(errors.Is(err, fence.ErrStale))
	// Output:
	// written
	// <nil>
	// fence: token 7 is stale: 9 has been seen
	// true
}
