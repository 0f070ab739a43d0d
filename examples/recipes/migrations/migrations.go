// Package migrations runs golang-migrate on one of several processes at a time, for
// databases without locks of their own.
package migrations

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/wardmote/wardmote/locks"
)

// DefaultWait is shorter than migrate.DefaultLockTimeout: nobody would unlock a lock that
// came after the timeout.
const DefaultWait = 10 * time.Second

// Driver is a database.Driver whose Lock and Unlock are those of a key, for
// migrate.NewWithInstance and the like. A Driver is for one migrate.Migrate.
//
// The interface cannot tell a loss of the lock. After a loss the migrations go on, beside
// another process, and Unlock reports the loss. To end the migrations with the lock, send
// to Migrate.GracefulStop from OnLost.
type Driver struct {
	database.Driver

	Client *locks.Client
	Key    string
	Wait   time.Duration          // for the key; 0: DefaultWait. Keep it below Migrate.LockTimeout
	OnLost func(*locks.LostError) // called before another process is granted the key; may be nil

	mu   sync.Mutex
	lock *locks.Lock
}

// Lock waits for the key. After Wait the error matches database.ErrLocked.
func (d *Driver) Lock() error {
	wait := d.Wait
	if wait == 0 {
		wait = DefaultWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	l, err := d.Client.Acquire(ctx, d.Key)
	if err != nil {
		return errors.Join(database.ErrLocked, err)
	}
	if d.OnLost != nil {
		call := func() {
			if lost, ok := errors.AsType[*locks.LostError](l.Err()); ok {
				d.OnLost(lost)
			}
		}
		if err := l.BeforeNext(call); err != nil {
			call()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lock = l
	return nil
}

// Unlock releases the key. The error matches locks.ErrLost if the lock was lost before.
func (d *Driver) Unlock() error {
	d.mu.Lock()
	l := d.lock
	d.lock = nil
	d.mu.Unlock()
	if l == nil {
		return database.ErrNotLocked
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return l.Release(ctx)
}
