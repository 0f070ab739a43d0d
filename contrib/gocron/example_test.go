package gocronwardmote_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/wardmote/wardmote"
	gocronwardmote "github.com/wardmote/wardmote/contrib/gocron"
	"github.com/wardmote/wardmote/locks"
)

// A program has its client from wardmote.Main, on each of its processes. Each tick of the
// job runs on one of them.
func ExampleLocker() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Node().Ready(ctx); err != nil { // ticks before are skipped
		log.Fatal(err)
	}

	locker := gocronwardmote.NewLocker(client, gocronwardmote.Options{Keep: time.Second})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool)
	report := func(ctx context.Context, l *locks.Lock) error { // ctx ends with the lock
		ran <- l.Token() > 0
		return nil
	}
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(locker.Task("report", report)), gocron.WithName("report"))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("ran under a token:", <-ran)

	if err := scheduler.Shutdown(); err != nil { // first the scheduler
		log.Fatal(err)
	}
	if err := locker.Close(ctx); err != nil { // then the locker, then the client
		log.Fatal(err)
	}
	// Output: ran under a token: true
}

func ExampleElector() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}

	elector := gocronwardmote.NewElector(client, "scheduler")
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool, 100)
	work := func(ctx context.Context, l *locks.Lock) error { // ctx ends with the term
		ran <- l.Token() > 0
		return nil
	}
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(elector.Task(work)))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("ran in a term:", <-ran)

	if err := scheduler.Shutdown(); err != nil { // first the scheduler
		log.Fatal(err)
	}
	if err := elector.Close(ctx); err != nil { // then the elector, then the client
		log.Fatal(err)
	}
	// Output: ran in a term: true
}
