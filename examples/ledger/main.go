// Command ledger adds 1 to a number in a file, from several processes, and loses
// no addition. Start it in one terminal, and then in others with the command that
// it prints:
//
//	go run ./examples/ledger
//	go run ./examples/ledger -join 127.0.0.1:PORT
//
// They take turns. With three terminals, wait ten seconds or so until there are
// three voters, and press Ctrl-Z in one: the others go on when the TTL of 5 s has
// passed. Type fg, and if it was about to write, the fence refuses that. The file
// is in the folder for temporary files; the number survives all of this.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

var path = filepath.Join(os.TempDir(), "wardmote-ledger")

func main() {
	join := flag.String("join", "", "host:port of any member; without it, found a cluster")
	flag.Parse()
	if err := run(*join); err != nil {
		log.Fatal(err)
	}
}

func run(join string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg := cluster.Config{TTL: 5 * time.Second}
	if join == "" {
		cfg.InitialSize = 1 // alone; the others only join, or there would be two clusters
	} else {
		cfg.Join = []string{join}
	}
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	log.Printf("the number is in %s", path)
	log.Printf("%s. In other terminals: go run ./examples/ledger -join %s", node.Name(), node.Addr())

	client := locks.New(node, locks.Options{})
	for err == nil && ctx.Err() == nil {
		// Do waits for the lock, runs add, and releases.
		err = client.Do(ctx, "ledger", add)
		if errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrSessionLost) {
			log.Print("not added: ", err)
			err = nil // a refusal by the fence alone would mean that another cluster writes the file
		}
	}
	if ctx.Err() != nil {
		err = nil // Ctrl-C is how it ends
	}
	bye, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.Close(bye), node.Leave(bye))
}

func add(ctx context.Context, l *locks.Lock) error {
	guard, err := fence.OpenFile(path + ".fence")
	if err != nil {
		return err
	}
	defer guard.Close()
	// Before the first read: whoever held the lock before cannot write any more.
	if err := guard.Claim(l.Token()); err != nil {
		return err
	}
	n := 0
	text, err := os.ReadFile(path)
	if err == nil {
		n, err = strconv.Atoi(string(text))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n++
	time.Sleep(time.Second) // work on what to write; most pauses would hit here
	// The fence compares tokens and writes in one step. No check before the write
	// could replace it: a pause may come after any check.
	err = guard.Do(l.Token(), func() error {
		// By renaming, so that kill -9 leaves the old number or the new one.
		if err := os.WriteFile(path+".new", []byte(strconv.Itoa(n)), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	if err == nil {
		log.Printf("%d, token %d", n, l.Token())
	}
	return err
}
