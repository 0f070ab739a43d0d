package wardmote_test

import (
	"context"
	"fmt"
	"log"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// A program of a single process, such as a developer's run of the application, takes
// its locks from Local. The work stays the same.
func ExampleLocal() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = client.Do(ctx, "report", func(ctx context.Context, l *locks.Lock) error {
		fmt.Println("one at a time")
		return nil
	})
	fmt.Println(err)
	// Output:
	// one at a time
	// <nil>
}

// A program that handles its signals and reads its settings itself calls Run. Run
// returns what its work returns.
func ExampleRun() {
	cfg := cluster.Config{InitialSize: 1}
	err := wardmote.Run(context.Background(), cfg, func(ctx context.Context, c *locks.Client) error {
		fmt.Println("begun, although the cluster is not founded yet")
		return nil
	})
	fmt.Println(err)
	// Output:
	// begun, although the cluster is not founded yet
	// <nil>
}
