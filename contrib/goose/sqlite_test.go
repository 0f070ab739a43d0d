//go:build !race

// SQLite under the race detector takes minutes to compile. The tests of locker_test.go
// run under it.

package goosewardmote_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock/locktesting"
	_ "modernc.org/sqlite"

	"github.com/wardmote/wardmote"
	goosewardmote "github.com/wardmote/wardmote/contrib/goose"
	"github.com/wardmote/wardmote/locks"
)

// migrations fail if two processes run them at a time, or twice.
var migrations = fstest.MapFS{
	"00001_one.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE one (id INTEGER);\n")},
	"00002_two.sql":   {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE TABLE two (id INTEGER);\n")},
	"00003_three.sql": {Data: []byte("-- +goose Up\nINSERT INTO two VALUES (3);\n")},
}

func openDB(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// processes returns clients of a cluster in real time, which is ready at once. Each stands
// for a process.
func processes(t *testing.T, n int) (clients []*locks.Client) {
	t.Helper()
	first, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Node().Stop() })
	for range n {
		clients = append(clients, locks.New(first.Node(), locks.Options{}))
	}
	return clients
}

// goose's own test of a provider: five processes migrate a database at once, one of them
// applies all migrations, and the others none.
func TestOneOfFiveProvidersMigrates(t *testing.T) {
	clients := processes(t, 5)
	for _, kind := range []string{"Locker", "SessionLocker"} {
		t.Run(kind, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "db")
			n := 0
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				k := goosewardmote.New(clients[n], kind, goosewardmote.Options{})
				n++
				with := goose.WithLocker(k)
				if kind == "SessionLocker" {
					with = goose.WithSessionLocker(k)
				}
				p, err := goose.NewProvider(goose.DialectSQLite3, openDB(t, name), migrations, with)
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

// The lock is lost during a migration: goose's error has the loss.
func TestTheErrorOfGooseHasTheLoss(t *testing.T) {
	clients := processes(t, 2)
	broken := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, _ *sql.Tx) error {
		status, err := clients[1].Inspect(ctx, "migrations")
		if err != nil {
			return err
		}
		return clients[1].Break(ctx, "migrations", status.Holders[0].Token)
	}}, nil)
	p, err := goose.NewProvider(goose.DialectSQLite3, openDB(t, filepath.Join(t.TempDir(), "db")), nil,
		goose.WithGoMigrations(broken), goose.WithLocker(goosewardmote.New(clients[0], "migrations", goosewardmote.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Up beside a loss returned %v", err)
	}
}

// A program has its client from wardmote.Main, on each of its processes.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file::memory:?cache=shared")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations,
		goose.WithLocker(goosewardmote.New(client, "migrations/orders", goosewardmote.Options{})))
	if err != nil {
		log.Fatal(err)
	}
	applied, err := provider.Up(ctx)
	fmt.Println(len(applied), "migrations applied:", err)
	// Output: 3 migrations applied: <nil>
}
