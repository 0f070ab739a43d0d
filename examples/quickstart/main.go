// Command quickstart shows what wardmote does, and what it is for, with three
// processes on this computer and nothing to set up:
//
//	go run ./examples/quickstart
//
// It starts itself three times. The three processes, ann, ben and cid, find
// each other, found a cluster, elect one of themselves as scheduler, and divide
// 12 shards; the owner of a shard is the only one to write to its ledger, a file.
//
// On a terminal you see a live table, and break things by pressing a key: k
// kills the scheduler's process, p pauses it for three TTLs, r restarts what is
// dead, q quits. After a pause you see what no lock can prevent, and how it ends:
// the process wakes up and finishes the writes that it was in the middle of,
// though its shards are others' by now, and the fence refuses them.
//
// With -script, or where there is no terminal, it breaks things by itself, in
// half a minute, and tells what happens. Then it reads the ledgers back: did two
// owners ever write at once, was a stale write accepted, has a token fallen, was
// an update lost? The last line is the verdict, in JSON, and the exit status is 0
// only if all is well and a stale write was tried and refused.
//
// To copy from: member.go is what an application does with wardmote, worker.go
// is a shard's single writer, ledger.go is a file behind a fence. check.go reads
// the ledgers. The rest starts, breaks and watches the processes.
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
	// ttl is short, so that a take-over does not bore. With the default of 10 s
	// nobody loses a lock because a host is busy.
	ttl = 2 * time.Second

	shards = 12
)

var names = []string{"ann", "ben", "cid"}

func main() {
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		os.Exit(memberMain(os.Args[2:]))
	}
	scripted := flag.Bool("script", false, "break things by itself and give a verdict; so too without a terminal")
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
	if !*scripted && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		play = playLive
	}
	os.Exit(play(ctx, *keep))
}
