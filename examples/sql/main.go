// Command sql shows why a lock is not enough for money. Two tellers, ann and ben, pay from
// one account in a database, each under the lock. Ann is stopped between the read and the
// write; the lock passes to ben, and then ann wakes up and writes. Without a fence the
// database takes ann's write, and money is lost. With the fence the database refuses.
//
// The program needs no server: SQLite in a temporary file is enough.
//
//	cd examples/sql && go run .
//	go run . -database postgres://user:password@localhost/test
//	go run . -database mysql:user:password@tcp(localhost:3306)/test
//
// In a database of yours the program makes the table wardmote_example_account, and drops
// the table at the end. The code to copy is in account.go.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/sqlfence"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	database := flag.String("database", "", "postgres://..., mysql:DSN or sqlite:FILE; if empty, SQLite and a temporary file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *database)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, database string) (err error) {
	if database == "" {
		dir, err := os.MkdirTemp("", "wardmote-sql")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		database = "sqlite:" + filepath.Join(dir, "bank")
	}
	db, dialect, err := open(database)
	if err != nil {
		return err
	}
	defer db.Close()

	// A cluster within this process is enough to see the fence at work. In production
	// the tellers are processes on several hosts: see examples/ledger for a start.
	client, err := wardmote.Local(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Node().Stop()) }()

	bank := Bank{DB: db, Dialect: dialect, Locks: client}
	defer func() { err = errors.Join(err, bank.Close(context.WithoutCancel(ctx))) }()
	fmt.Fprintf(out, "An account has %d. Ann takes 30 and Ben takes 50, each under the lock.\n", start)
	fmt.Fprintln(out, "\nWithout the fence:")
	lost, err := play(ctx, out, bank)
	if err != nil {
		return err
	}
	if lost == 0 {
		return errors.New("no money was lost without the fence")
	}

	bank.Guard, err = sqlfence.New(dialect, sqlfence.Table{Name: table, Resource: "id", Token: "fence", InRow: true})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWith the fence:")
	lost, err = play(ctx, out, bank)
	if err == nil && lost != 0 {
		err = errors.New("money was lost in spite of the fence")
	}
	return err
}

// open returns a database by the name that the flag gives.
func open(database string) (*sql.DB, sqlfence.Dialect, error) {
	kind, rest, _ := strings.Cut(database, ":")
	switch kind {
	case "postgres", "postgresql":
		db, err := sql.Open("pgx", database)
		return db, sqlfence.PostgreSQL, err
	case "mysql":
		db, err := sql.Open("mysql", strings.TrimPrefix(rest, "//"))
		return db, sqlfence.MySQL, err
	case "sqlite":
		db, err := sql.Open("sqlite", "file:"+rest+"?_pragma=busy_timeout(10000)&_txlock=immediate")
		return db, sqlfence.SQLite, err
	}
	return nil, 0, fmt.Errorf("-database %q: want postgres://..., mysql:DSN or sqlite:FILE", database)
}

const start = 100

// play lets ann be paused between her read and her write, while ben works, and returns the
// sum that was lost.
func play(ctx context.Context, out io.Writer, bank Bank) (lost int, err error) {
	if err := bank.Open(ctx, start); err != nil {
		return 0, err
	}
	ben := bank
	ben.Between = func(ctx context.Context, _ *locks.Lock, balance int) context.Context {
		fmt.Fprintf(out, "  ben has the lock and reads %d\n", balance)
		return ctx
	}
	ann := bank
	var meanwhile error
	var once sync.Once
	ann.Between = func(held context.Context, l *locks.Lock, balance int) context.Context {
		fmt.Fprintf(out, "  ann has the lock and reads %d\n", balance)
		once.Do(func() { meanwhile = pause(ctx, out, l, &ben) })
		// A process that wakes up may send the next statement before any goroutine has
		// looked at ctx: so the end of the lock's context does not save the account.
		return context.WithoutCancel(held)
	}

	left, err := ann.Withdraw(ctx, 30)
	switch {
	case meanwhile != nil:
		return 0, meanwhile
	case errors.Is(err, fence.ErrStale):
		var stale *fence.StaleError
		errors.As(err, &stale)
		fmt.Fprintf(out, "  ann wakes up and writes 70: the database refuses, since ann has token %d and has seen %d\n", stale.Token, stale.Seen)
		fmt.Fprintln(out, "  ann is paid nothing, and begins anew:")
		if left, err = ann.Withdraw(ctx, 30); err != nil {
			return 0, err
		}
		fmt.Fprintf(out, "  ann writes %d, and is paid 30\n", left)
	case err == nil:
		fmt.Fprintf(out, "  ann wakes up and writes %d, and is paid 30: the database takes it\n", left)
	default:
		return 0, err
	}

	balance, paid, err := bank.Read(ctx)
	if err != nil {
		return 0, err
	}
	lost = balance + paid - start
	fmt.Fprintf(out, "  %d in the account and %d paid make %d: ", balance, paid, balance+paid)
	if lost == 0 {
		fmt.Fprintln(out, "nothing is lost")
	} else {
		fmt.Fprintf(out, "THE BANK HAS LOST %d\n", lost)
	}
	return lost, nil
}

// pause plays the pause of a process that holds l. In a real pause the lock passes on after
// a TTL without beats of the holder; here an operator breaks the grant, to save the wait.
func pause(ctx context.Context, out io.Writer, l *locks.Lock, ben *Bank) error {
	fmt.Fprintln(out, "  ann is stopped right before the write, and the lock passes on")
	if err := ben.Locks.Break(ctx, l.Key(), l.Token()); err != nil {
		return err
	}
	left, err := ben.Withdraw(ctx, 50)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  ben writes %d, and is paid 50\n", left)
	return nil
}
