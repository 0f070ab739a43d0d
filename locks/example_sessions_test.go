package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/wardmote/wardmote/locks"
)

// Values lists stored values; an update to nothing deletes a value.
func ExampleClient_Values() {
	ctx := context.Background()
	client := locks.New(alone(), locks.Options{})
	defer client.Close(ctx)

	for key, value := range map[string]string{"config/colour": "green", "config/size": "7"} {
		if err := client.Cell(key).Update(ctx, func([]byte) []byte { return []byte(value) }); err != nil {
			log.Fatal(err)
		}
	}
	for value, err := range client.Values(ctx, "config/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s is %s\n", value.Key, value.Data)
		if err := client.Cell(value.Key).Update(ctx, func([]byte) []byte { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	for value := range client.Values(ctx, "config/") {
		fmt.Println("left:", value.Key)
	}
	// Output:
	// config/colour is green
	// config/size is 7
}

// Sessions shows the clients of all members.
func ExampleClient_Sessions() {
	ctx := context.Background()
	client := locks.New(alone(), locks.Options{Name: "ann", Meta: map[string]string{"version": "1.4"}})
	defer client.Close(ctx)

	if _, err := client.AcquireAll(ctx, []string{"room/3", "room/7"}); err != nil {
		log.Fatal(err)
	}
	for session, err := range client.Sessions(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if session.Self {
			fmt.Println(session.Client, "of version", session.Meta["version"], "holds", session.Keys, "keys")
		}
	}
	// Output:
	// ann of version 1.4 holds 2 keys
}

// An operator takes everything from a client that hangs. The client is told first.
func ExampleClient_EndSession() {
	ctx := context.Background()
	node := alone()
	worker := locks.New(node, locks.Options{Name: "worker-3"})
	defer worker.Close(ctx)
	operator := locks.New(node, locks.Options{})
	defer operator.Close(ctx)

	lock, err := worker.Acquire(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	for session, err := range operator.Sessions(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if session.Client == "worker-3" {
			fmt.Println("end:", operator.EndSession(ctx, session.Ref))
		}
	}
	fmt.Println("worker-3 knows:", errors.Is(context.Cause(lock.Context()), locks.ErrSessionEnded))
	// Output:
	// end: <nil>
	// worker-3 knows: true
}
