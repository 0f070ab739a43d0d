package migrations_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	dbstub "github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source"
	srcstub "github.com/golang-migrate/migrate/v4/source/stub"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/examples/recipes/migrations"
	"github.com/wardmote/wardmote/locks"
)

// store is golang-migrate's own driver for tests, whose lock is left out: several
// migrations at a time would be seen.
type store struct {
	*dbstub.Stub

	mu      sync.Mutex
	running int
	during  func() // in each migration
}

func (s *store) Lock() error   { return errors.New("the driver's own lock was used") }
func (s *store) Unlock() error { return errors.New("the driver's own lock was used") }

func (s *store) SetVersion(version int, dirty bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dirty {
		s.running++
	} else {
		s.running--
	}
	if s.running > 1 {
		return fmt.Errorf("%d migrations at a time", s.running)
	}
	if dirty && s.during != nil {
		s.during()
	}
	return s.Stub.SetVersion(version, dirty)
}

func open(t *testing.T) (*store, source.Driver) {
	t.Helper()
	db, err := dbstub.WithInstance(nil, &dbstub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	src, err := srcstub.WithInstance(nil, &srcstub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for v := uint(1); v <= 3; v++ {
		src.(*srcstub.Stub).Migrations.Append(&source.Migration{Version: v, Direction: source.Up, Identifier: fmt.Sprint("UP ", v)})
	}
	return &store{Stub: db.(*dbstub.Stub)}, src
}

func process(t *testing.T, d *migrations.Driver, src source.Driver) *migrate.Migrate {
	t.Helper()
	m, err := migrate.NewWithInstance("stub", src, "stub", d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func local(t *testing.T) *locks.Client {
	t.Helper()
	client, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Node().Stop() })
	return client
}

// Three processes migrate at once: one applies all, the others find nothing to do.
func TestOneOfThreeMigrates(t *testing.T) {
	node := local(t).Node()
	db, src := open(t)
	results := make(chan error)
	for range 3 {
		m := process(t, &migrations.Driver{Driver: db, Client: locks.New(node, locks.Options{}), Key: "migrations"}, src)
		go func() { results <- m.Up() }()
	}
	applied := 0
	for range 3 {
		switch err := <-results; {
		case err == nil:
			applied++
		case !errors.Is(err, migrate.ErrNoChange):
			t.Error(err)
		}
	}
	if applied != 1 || len(db.MigrationSequence) != 3 {
		t.Errorf("%d processes applied %q", applied, db.MigrationSequence)
	}
}

// A taken key is ErrLocked after Wait; a loss during a migration is told at once, and by Up.
func TestTakenAndLost(t *testing.T) {
	client := local(t)
	db, src := open(t)
	l, err := client.Acquire(t.Context(), "migrations")
	if err != nil {
		t.Fatal(err)
	}
	lost := make(chan *locks.LostError, 1)
	d := &migrations.Driver{Driver: db, Client: client, Key: "migrations", Wait: 50 * time.Millisecond, OnLost: func(err *locks.LostError) { lost <- err }}
	if err := process(t, d, src).Up(); !errors.Is(err, database.ErrLocked) {
		t.Errorf("a taken key: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Wait = 0
	db.during = func() {
		db.during = nil
		status, err := client.Inspect(t.Context(), "migrations")
		if err == nil {
			err = client.Break(t.Context(), "migrations", status.Holders[0].Token)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := process(t, d, src).Up(); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Up beside a loss: %v", err)
	}
	if err := <-lost; err.Reason != locks.Broken {
		t.Errorf("OnLost was told of %v", err)
	}
	if err := d.Unlock(); !errors.Is(err, database.ErrNotLocked) {
		t.Errorf("a second Unlock: %v", err)
	}
}
