// Package goosewardmote lets several processes run the migrations of goose
// (github.com/pressly/goose/v3) one at a time, by a lock of wardmote. The database needs no
// locks of its own: SQLite on a shared volume or ClickHouse is enough.
//
//	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations,
//		goose.WithLocker(goosewardmote.New(client, "migrations/orders", goosewardmote.Options{})))
//
// Every process that migrates the database must name the same key, and no other database may
// have that key. If the database has locks (PostgreSQL, MySQL), prefer goose's own
// lockers: there the lock and the data live and die together.
//
// # When the lock is lost
//
// goose's interfaces cannot report the loss of a lock in the middle of the migrations. The
// migrations go on, and another process may begin: goose then runs two at a time. After
// the last migration Unlock returns the *locks.LostError, and so does the call of goose, as
// part of its error; Options.OnLost is called before another process is granted the key.
//
// To end the migrations with the lock, run the provider without a Locker inside of
// locks.Client.Do, whose context ends with the lock:
//
//	err := client.Do(ctx, "migrations/orders", func(ctx context.Context, l *locks.Lock) error {
//		_, err := provider.Up(ctx)
//		return err
//	})
//
// In both cases a migration in a transaction is applied once, because goose records it in the
// same transaction. A migration without a transaction should be repeatable.
package goosewardmote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/wardmote/wardmote/locks"
)

// releaseTime bounds the wait for the cluster's answer to a release. After it the client
// goes on to tell the cluster in the background.
const releaseTime = 5 * time.Second

// ErrNotHeld: Unlock or SessionUnlock of a Locker that is not locked.
var ErrNotHeld = errors.New("goosewardmote: not held by this locker")

// Options configures a Locker. The zero value is sound.
type Options struct {
	// OnLost is called when the lock is lost during the migrations, before any other
	// process is granted the key. See locks.Lock.BeforeNext for the time that OnLost may
	// take. Default: none.
	OnLost func(*locks.LostError)
}

// Locker is a lock.Locker for goose.WithLocker, and a lock.SessionLocker for
// goose.WithSessionLocker. Both take the same key and never touch the database. A Locker
// may be used by several providers of a process at the same time: one after the other
// holds it.
type Locker struct {
	client *locks.Client
	key    string
	opts   Options

	mu   sync.Mutex
	held []*locks.Lock // in the order of the grants; more than one only after a loss
}

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// New returns a Locker of key. The client stays the caller's.
func New(client *locks.Client, key string, opts Options) *Locker {
	return &Locker{client: client, key: key, opts: opts}
}

// Lock waits for the key until ctx ends. The errors are those of locks.Client.Acquire;
// nothing is held then, and goose runs no migration.
func (k *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	l, err := k.client.Acquire(ctx, k.key)
	if err != nil {
		return err
	}
	if f := k.opts.OnLost; f != nil {
		call := func() {
			if lost, ok := errors.AsType[*locks.LostError](l.Err()); ok {
				f(lost)
			}
		}
		if err := l.BeforeNext(call); err != nil { // lost already
			call()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = append(k.held, l)
	return nil
}

// Unlock releases the key, also if ctx has ended. The error is a *locks.LostError if the
// lock was lost before: another process may have migrated the database meanwhile. If the
// cluster did not answer in time, the error says so; the client keeps telling the
// cluster, and the key is free after the TTL at the latest. The error matches ErrNotHeld if the
// Locker is not locked.
func (k *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	k.mu.Lock()
	if len(k.held) == 0 {
		k.mu.Unlock()
		return fmt.Errorf("%w: %q", ErrNotHeld, k.key)
	}
	// After a loss the lost lock goes first, whichever provider unlocks first: the later
	// lock is held until both providers have unlocked.
	l := k.held[0]
	k.held = k.held[1:]
	k.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	return l.Release(ctx)
}

// SessionLock is Lock.
func (k *Locker) SessionLock(ctx context.Context, _ *sql.Conn) error { return k.Lock(ctx, nil) }

// SessionUnlock is Unlock.
func (k *Locker) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return k.Unlock(ctx, nil) }
