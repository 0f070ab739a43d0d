package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func init() {
	// The kernel ends a peer's servers with the thread that started them: see apart.
	runtime.LockOSThread()
}

func main() {
	var (
		serve    = flag.String("serve", "", "be the process of this `system`: for bench itself")
		member   = flag.String("member", "", "with -serve member: the member, in `JSON`")
		dir      = flag.String("dir", "", "keep the systems' data below this `directory` (default: a temporary one)")
		list     = flag.Bool("list", false, "print the systems and the workloads")
		rounds   = flag.Int("rounds", 9, "rounds of each workload: a round has one turn of each system")
		turn     = flag.Duration("turn", time.Second, "length of a turn")
		only     = flag.String("only", "", "run only these `workloads`, with commas between them")
		systems  = flag.String("systems", "", "run only these `systems`, with commas between them")
		quick    = flag.Bool("quick", false, "run only the workloads and systems of the aims about rates: about eight minutes")
		smoke    = flag.Bool("smoke", false, "run wardmote alone, each workload once and shortly")
		markdown = flag.String("o", "", "write the report to this `file`, and a chart beside it with the ending svg")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [flags]\n\nbench compares wardmote with lock services. The report goes to standard output.\n\nflags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *serve == "member" {
		if err := serveMember(*member, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: member:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*serve, plan{
		dir: *dir, list: *list, rounds: *rounds, turn: *turn, only: split(*only), systems: split(*systems), smoke: *smoke, quick: *quick, report: *markdown,
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(serve string, p plan) error {
	if serve != "" {
		return serveMain(serve, p.dir)
	}
	if p.list {
		for _, k := range kinds {
			there := "runs here"
			if err := k.there(); err != nil {
				there = "does not run here: " + err.Error()
			}
			fmt.Printf("%-24s %-8s %s; %s\n", k.name, k.class, k.title, there)
		}
		for _, w := range workloads {
			fmt.Printf("%-16s %-12s %s\n", w.name, w.in, w.title)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.run(ctx)
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
