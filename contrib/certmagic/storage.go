// Package certmagicwardmote gives certmagic (github.com/caddyserver/certmagic) the locks of
// wardmote, beside a storage that all processes share: a certificate that is missing or due
// is obtained by one process at a time.
//
//	config := certmagic.New(cache, certmagic.Config{
//		Storage: certmagicwardmote.Wrap(storage, client, certmagicwardmote.Options{}),
//	})
//
// The certificates stay in the storage. Lock, TryLock and Unlock go to wardmote's cluster,
// and the locks of the storage itself are not used. All processes must wrap the storage
// with the same Prefix: a process without Wrap is not excluded.
//
// # When a lock is lost
//
// certmagic's interfaces cannot report a loss in the middle of the work, and certmagic tells
// the owner of a lock by its name alone. So after a loss:
//
//   - Options.OnLost is called before another process is granted the lock;
//   - the next RenewLockLease fails, which ends the attempts of certmagic. certmagic asks
//     for a renewal before each attempt to obtain or renew a certificate;
//   - the order that is under way goes on. So a certificate may be ordered twice, at the
//     cost of one order with the issuer. After taking a lock certmagic looks into the
//     storage again, so that such an overlap is rare and harms nothing.
//
// A process that is killed keeps its locks taken until the TTL of its session has passed.
package certmagicwardmote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/wardmote/wardmote/locks"
)

// releaseTime bounds the wait for the cluster's answer to a release. After it the client
// goes on to tell the cluster in the background.
const releaseTime = 5 * time.Second

// ErrNotHeld: Unlock or RenewLockLease named a lock that this Storage does not hold.
var ErrNotHeld = errors.New("certmagicwardmote: not held by this storage")

// Options configures Wrap. The zero value is sound.
type Options struct {
	// Prefix is put before certmagic's name of a lock to make the key. Default:
	// "certmagic/". Storages that are independent of each other need different prefixes.
	Prefix string

	// OnLost is called when a lock is lost, before any other process is granted it. See
	// locks.Lock.BeforeNext for the time that OnLost may take. Default: none.
	OnLost func(*locks.LostError)
}

// Storage is a certmagic.Storage with the locks of wardmote's cluster. Wrap makes one. Its
// methods may be called from any goroutine.
type Storage struct {
	certmagic.Storage // of the files; its locks are not used

	client *locks.Client
	opts   Options

	mu   sync.Mutex
	held map[string][]*locks.Lock // by name, in the order of the grants
}

// certmagic finds the optional interfaces by type assertion.
var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Wrap returns a Storage that keeps its files in storage, and has its locks from client.
// The client stays the caller's. Close it after the certmagic.Cache has stopped.
func Wrap(storage certmagic.Storage, client *locks.Client, opts Options) *Storage {
	if opts.Prefix == "" {
		opts.Prefix = "certmagic/"
	}
	return &Storage{Storage: storage, client: client, opts: opts, held: make(map[string][]*locks.Lock)}
}

// Lock waits for the lock of name until ctx ends. The errors are those of
// locks.Client.Acquire; nothing is held then.
func (s *Storage) Lock(ctx context.Context, name string) error {
	l, err := s.client.Acquire(ctx, s.opts.Prefix+name)
	if err != nil {
		return err
	}
	s.add(name, l)
	return nil
}

// TryLock takes the lock of name unless somebody holds it or waits for it: then it returns
// false and no error. The errors are those of locks.Client.TryAcquire; nothing is held then.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	l, err := s.client.TryAcquire(ctx, s.opts.Prefix+name)
	switch {
	case errors.Is(err, locks.ErrHeld):
		return false, nil
	case err != nil:
		return false, err
	}
	s.add(name, l)
	return true, nil
}

func (s *Storage) add(name string, l *locks.Lock) {
	if f := s.opts.OnLost; f != nil {
		call := func() {
			if lost, ok := errors.AsType[*locks.LostError](l.Err()); ok {
				f(lost)
			}
		}
		if err := l.BeforeNext(call); err != nil { // lost already
			call()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], l)
}

// Unlock releases the lock of name, also if ctx has ended. If the lock was lost before,
// Unlock returns nil, because nothing is left to be released: Options.OnLost has reported
// the loss. After a loss two callers of this Storage may have the same name, of which the
// first still works without the lock. The lost lock then counts as unlocked first,
// whichever caller comes first, so that the later lock is held until both have unlocked.
//
// If the cluster did not answer in time, the error says so; the client keeps telling the
// cluster, and the key is free after the TTL at the latest. The error matches ErrNotHeld if
// this Storage does not hold the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	l := s.take(name)
	if l == nil {
		return fmt.Errorf("%w: %q", ErrNotHeld, name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	err := l.Release(ctx)
	if errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrSessionLost) {
		return nil // the key was freed without this call
	}
	return err
}

// take removes the oldest lock of name.
func (s *Storage) take(name string) *locks.Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[name]
	if len(held) == 0 {
		return nil
	}
	if s.held[name] = held[1:]; len(held) == 1 {
		delete(s.held, name)
	}
	return held[0]
}

// RenewLockLease returns nil if the lock of name is held and can be trusted now. The
// client's beats renew it for as long as the process lives, so the duration has no
// meaning here. Otherwise the error is the *locks.LostError of the lock, or matches
// ErrNotHeld.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[name]
	if len(held) == 0 {
		return fmt.Errorf("%w: %q", ErrNotHeld, name)
	}
	return held[0].Err()
}
