package locks

import (
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// Option changes how a key is acquired. Options that contradict each other, or
// what they are given to, make the call fail with a *cluster.ConfigError before
// anything is sent.
type Option func(*acquireRequest)

// Shared makes the lock one of readers: any number of shared locks of a key are
// held at a time, up to 10,000, but none beside an exclusive one. A shared lock
// that asks later than an exclusive one waits behind it, so that readers do not
// starve writers. Lock.Upgrade makes a shared lock exclusive, Lock.Downgrade an
// exclusive one shared.
func Shared() Option {
	return func(r *acquireRequest) {
		r.noteOption(optShared)
		r.mode = machine.Shared
	}
}

// Permit makes the lock one of at most of, 1 to 10,000, that are held at a time:
// the key is a counting semaphore. All who hold or wait for permits of a key must
// name the same number; a call that names another fails with a *CapacityError.
// Once nobody holds or waits, the number is free to change.
func Permit(of int) Option {
	return func(r *acquireRequest) {
		r.noteOption(optPermit)
		if of < 1 || of > machine.MaxHolders {
			r.setErr(configError("Permit", "%d is not within 1 and %d", of, machine.MaxHolders))
			return
		}
		r.mode, r.of = machine.Permit, uint32(of)
	}
}

// Tree makes the lock one of the key and of everything below it. Keys are paths
// whose segments are divided by slashes: "a/b" is below "a", and "ab" is not. A
// tree is not held together with any lock above or below it, unless both are
// Shared. Locks that are no trees do not mind what is above or below them.
func Tree() Option {
	return func(r *acquireRequest) {
		r.noteOption(optTree)
		r.tree = true
	}
}

// Reentrant lets those who name the same owner, 1 to 128 bytes of valid UTF-8,
// enter the key again while one of them holds it. Owners are known to the Client
// only: another client's owner of the same name is another owner.
//
// The first Acquire of an owner acquires the key as ever. Each that follows while
// that is held returns at once, without asking the cluster: a Lock of its own,
// with its own context, but with the same token and value. Each is released by
// itself, and the key is freed by the last Release: see Lock.Depth. All are lost
// together. An owner enters a key at most 65,536 times at a time.
//
// The cluster does not know of those who wait for another's request: what their
// contexts descend from is not searched for deadlocks.
//
// Who enters again must ask for the same mode; other options count only for the
// first. Calls of one owner at a time share one request: the others wait for the
// outcome of the first, and if that is a failure, one of them asks anew.
// TryAcquire does not wait for that: it fails with a *HeldError that names this
// client. Locks of an owner can not be upgraded, downgraded or, while others are
// held, handed over.
func Reentrant(owner string) Option {
	return func(r *acquireRequest) {
		r.noteOption(optReentrant)
		switch {
		case owner == "":
			r.setErr(configError("Reentrant", "no owner"))
		case len(owner) > machine.MaxName:
			r.setErr(configError("Reentrant", "an owner of %d bytes exceeds %d", len(owner), machine.MaxName))
		case !utf8.ValidString(owner):
			r.setErr(configError("Reentrant", "an owner that is not valid UTF-8"))
		}
		r.owner = owner
	}
}

// The priorities that there are.
const (
	minPriority = -100
	maxPriority = 100
)

// Priority puts the request before waiters of lower priority. p is -100 to 100;
// without this option it is 0. Nobody who holds is disturbed, and no waiter is
// passed more than 16 times: after that all stand behind it. Waiters for trees or
// for several keys, and those who hold other locks by their context's lineage,
// are not passed.
func Priority(p int) Option {
	return func(r *acquireRequest) {
		r.noteOption(optPriority)
		if p < minPriority || p > maxPriority {
			r.setErr(configError("Priority", "%d is not within %d and %d", p, minPriority, maxPriority))
			return
		}
		r.priority = int8(p)
	}
}

// Delay keeps the key taken for d after the holder's session expired: time for
// what a crashed holder has left under way to come to its end. A release, a
// closed client and a Break know no delay, and a client of the same name as the
// holder's need not wait for it. d is in whole milliseconds, up to 24 hours.
func Delay(d time.Duration) Option {
	return func(r *acquireRequest) {
		r.noteOption(optDelay)
		switch {
		case d <= 0 || d > machine.MaxDelay*time.Millisecond:
			r.setErr(configError("Delay", "%v is not within 1ms and %v", d, machine.MaxDelay*time.Millisecond))
		case d%time.Millisecond != 0:
			r.setErr(configError("Delay", "%v is not in whole milliseconds", d))
		default:
			r.delay = uint64(d / time.Millisecond)
		}
	}
}

// IfToken grants the key only if nobody was granted it after t, the token of an
// earlier grant: then whatever that one left behind is still as it was. If
// somebody was, the call fails with a *ChangedError, at once or as soon as that
// happens; with ErrTooOld if so old a token is forgotten. Of a key that was never
// granted Inspect tells a token, too, to go on from: 0 is too old for any key of a
// cluster that may have had a predecessor.
func IfToken(t fence.Token) Option {
	return func(r *acquireRequest) {
		r.noteOption(optIfToken)
		r.conditional, r.ifToken = true, machine.Token(t)
	}
}

// MaxWaiters makes the call fail with ErrTooManyWaiters, at once and with
// nothing changed, if n requests wait for the key already. n is 1 to 10,000;
// without this option it is 10,000. Spread applies it to the number of callers
// that share a name.
func MaxWaiters(n int) Option {
	return func(r *acquireRequest) {
		if n < 1 || n > machine.MaxWaiters {
			r.setErr(configError("MaxWaiters", "%d is not within 1 and %d", n, machine.MaxWaiters))
			return
		}
		r.maxWaiters = uint32(n)
	}
}

// Meta attaches m to the grant, for Inspect and Watch to tell: up to 4 KiB when
// encoded, which adds a few bytes to each key and value. It is copied.
func Meta(m map[string]string) Option {
	meta := encodeMeta(m)
	return func(r *acquireRequest) {
		if len(meta) > machine.MaxMeta {
			r.setErr(configError("Meta", "%d bytes when encoded exceed %d", len(meta), machine.MaxMeta))
			return
		}
		r.meta = meta
	}
}

// optionSet says which options a request was given, of those that do not go
// with everything.
type optionSet uint8

const (
	optShared optionSet = 1 << iota
	optPermit
	optTree
	optReentrant
	optPriority
	optDelay
	optIfToken
)

// names of the options, in the order in which they are complained of.
var optionNames = []struct {
	opt  optionSet
	name string
}{
	{optPermit, "Permit"},
	{optPriority, "Priority"},
	{optDelay, "Delay"},
	{optIfToken, "IfToken"},
	{optReentrant, "Reentrant"},
	{optTree, "Tree"},
	{optShared, "Shared"},
}

func (r *acquireRequest) noteOption(o optionSet) { r.options |= o }

// excludes refuses the options of a set, which do not go with what.
func (r *acquireRequest) refuseOptions(set optionSet, what string) {
	for _, o := range optionNames {
		if r.options&set&o.opt != 0 {
			r.setErr(configError(o.name, "cannot be combined with %s", what))
		}
	}
}

// apply takes the options, and refuses those that contradict each other: the
// table would refuse them too, but only after it was asked.
func (r *acquireRequest) applyOptions(opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(r)
		}
	}
	if r.options&optPermit != 0 {
		r.refuseOptions(optTree|optShared, "Permit")
	}
	if r.options&optTree != 0 {
		r.refuseOptions(optPriority, "Tree")
	}
	if r.options&optIfToken != 0 {
		r.refuseOptions(optReentrant, "IfToken")
	}
}
