// Command ledger adds 1 to a number in a file, from several processes, and loses
// no addition. Start the program in a terminal, and then in other terminals with
// the printed command:
//
//	go run ./examples/ledger
//	go run ./examples/ledger -join 127.0.0.1:PORT
//
// The processes take turns. Start three, wait a few seconds until there are
// three voters, and press Ctrl-Z in one terminal: the other processes go on when
// the TTL of 5 s has passed. Type fg: if the process was about to write, the fence
// refuses the write. The file is in the folder for temporary files, and no
// addition is lost.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

var path = filepath.Join(os.TempDir(), "wardmote-ledger")

func main() {
	join := flag.String("join", "", "host:port of any member; if empty, found a cluster")
	flag.Parse()
	cfg := cluster.Config{TTL: 5 * time.Second}
	if *join == "" {
		cfg.InitialSize = 1 // the others only join: a second founder would make a second cluster
	} else {
		cfg.Join = []string{*join}
	}
	if err := wardmote.Main(cfg, run); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, client *locks.Client) error {
	node := client.Node()
	log.Printf("the number is in %s", path)
	log.Printf("%s. In other terminals: go run ./examples/ledger -join %s", node.Name(), node.Addr())
	for ctx.Err() == nil {
		// Do waits for the lock, runs add, and releases.
		err := client.Do(ctx, "ledger", add)
		if errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrSessionLost) {
			log.Print("not added: ", err)
		} else if err != nil {
			// A refusal by the fence without a loss is an error: then another cluster
			// writes the file.
			return err
		}
	}
	return nil // Ctrl-C is the normal end
}

func add(ctx context.Context, l *locks.Lock) error {
	guard, err := fence.OpenFile(path + ".fence")
	if err != nil {
		return err
	}
	defer guard.Close()
	// Claim before the first read: from now on no earlier holder can write.
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
	time.Sleep(time.Second) // the long computation; most pauses would come here
	// The fence compares the tokens and writes in one step. A check before the
	// write cannot replace the fence, because a pause may come after any check.
	err = guard.Do(l.Token(), func() error {
		// Rename, so that kill -9 leaves either the old number or the new number.
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
