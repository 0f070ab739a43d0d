// Command quickstart shows the purpose of wardmote with three processes on this
// computer and nothing to set up:
//
//	go run ./examples/quickstart
//
// The program starts itself three times. The three processes, ann, ben and cid,
// find each other, found a cluster, elect a scheduler and divide 12 shards. Each
// shard has a ledger, a file. Only the owner of the shard writes to the ledger.
//
// On a terminal you see a live table and break things by pressing a key:
//
//	k  kill the scheduler's process
//	p  pause the scheduler's process for three TTLs
//	i  cut the scheduler's process off from the others for three TTLs
//	r  restart dead processes
//	q  quit
//
// A key that has to wait, for a voter to come back say, waits. The table has a bar of
// trust for each process: the time for which the process may rely on its locks if it
// reaches nobody from now on. It also has the address of a live page, which each process
// serves.
//
// A pause shows the case that no lock can prevent: the process wakes up in the
// middle of its writes and finishes them, although other processes own its shards
// by now. The fence refuses these writes. A process that is cut off ends its locks by
// itself, before other processes get them.
//
// With -script, without a terminal, or with TERM=dumb, the program breaks things by itself, in
// half a minute, and prints the events. Then the program reads the ledgers and
// checks that
//
//   - no two owners wrote at the same time,
//   - no stale write was accepted,
//   - no token fell,
//   - no update was lost.
//
// The last line is the verdict, in JSON. The exit status is 0 only if all checks
// pass and a stale write was attempted and refused.
//
// Copy from these files: member.go is the application, worker.go is the single
// writer of a shard, ledger.go is a file behind a fence. check.go checks the
// ledgers. The other files start, break and watch the processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// ttl is short, so that a take-over is quick to watch. An application should
	// use the default of 10 s, so that a busy host does not cost a lock.
	ttl = 2 * time.Second

	shards = 12
)

var names = []string{"ann", "ben", "cid"}

func main() {
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		os.Exit(memberMain(os.Args[2:]))
	}
	scripted := flag.Bool("script", false, "break things without a user and print a verdict; the default without a terminal")
	keep := flag.Bool("keep", false, "keep the folder with the ledgers")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unknown argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	// Ctrl-C must not end this process before it has ended the others.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	play := playScript
	if !*scripted && isTerminal(os.Stdin) && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" {
		play = playLive
	}
	os.Exit(play(ctx, *keep))
}
