package locks

import (
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// Option changes how a key is acquired. If an option cannot be used, alone or
// together with the others, the call fails with a *cluster.ConfigError before
// anything is sent.
type Option func(*acquireRequest)

// Shared makes the lock a reader's lock. Up to 10,000 shared locks of a key are
// held at a time, but none beside an exclusive lock. A shared request waits
// behind an exclusive request that came first, so that readers do not starve
// writers. Lock.Upgrade makes a shared lock exclusive, Lock.Downgrade an
// exclusive lock shared.
func Shared() Option {
	return func(r *acquireRequest) {
		r.options |= optShared
		r.cmd.Mode = machine.Shared
	}
}

// Tree locks the key and everything below the key. Keys are paths with slashes
// between their segments: "a/b" is below "a", and "ab" is not. A tree excludes
// all locks above and below, unless both locks are Shared. Two locks without
// this option do not exclude each other because of their paths.
func Tree() Option {
	return func(r *acquireRequest) {
		r.options |= optTree
		r.cmd.Tree = true
	}
}

// Reentrant lets all calls that name the same owner, 1 to 128 bytes of valid
// UTF-8, acquire the key again while the owner holds the key. Owners are known
// to this Client only: another client's owner of the same name is another owner.
//
// The owner's first Acquire acquires the key as usual. While the owner holds
// the key, each further Acquire returns at once, without asking the cluster.
// The new Lock has another context, but the same token and value. Each Lock is
// released by itself, and the last Release frees the key: see Lock.Depth. All
// are lost together. An owner holds at most 65,536 locks of a key at a time.
//
// Concurrent calls of an owner share one request: the others wait for the result
// of the first, and if that fails, one of the others asks anew. TryAcquire does
// not wait for another call's request, but fails with a *HeldError that names
// this client. The cluster does not know of calls that wait for another call's
// request, so their contexts are not searched for deadlocks.
//
// Each further call must ask for the same mode; other options count only for the
// first call. Reentrant locks cannot be upgraded or downgraded, nor, while their
// owner has several, handed over.
func Reentrant(owner string) Option {
	return func(r *acquireRequest) {
		r.options |= optReentrant
		r.owner = owner
		r.setErr(checkText("Reentrant", owner, machine.MaxName))
	}
}

// The range of priorities.
const (
	minPriority = -100
	maxPriority = 100
)

// Priority puts the request before waiters of lower priority. p is -100 to 100;
// the default is 0. Holders are not disturbed. A waiter is passed at most 16
// times; after that, all later requests stand behind it. Some waiters are never
// passed: waiters for trees, waiters for several keys, and waiters with a
// context that descends from another lock's.
func Priority(p int) Option {
	return func(r *acquireRequest) {
		r.options |= optPriority
		if p < minPriority || p > maxPriority {
			r.refuse("Priority", "%d is not within %d and %d", p, minPriority, maxPriority)
		}
		r.cmd.Priority = int8(p)
	}
}

// Delay keeps the key taken for d after the holder's session expired, so that
// work under way in a crashed holder can come to an end. d is in whole
// milliseconds, up to 24 hours. The delay does not apply after a Release, a
// Client.Close or a Break, nor to a client of the same name as the holder's.
func Delay(d time.Duration) Option {
	return func(r *acquireRequest) {
		r.options |= optDelay
		switch {
		case d <= 0 || d > machine.MaxDelay*time.Millisecond:
			r.refuse("Delay", "%v is not within 1ms and %v", d, machine.MaxDelay*time.Millisecond)
		case d%time.Millisecond != 0:
			r.refuse("Delay", "%v is not in whole milliseconds", d)
		}
		r.cmd.Delay = uint64(d / time.Millisecond)
	}
}

// IfToken grants the key only if there was no grant of the key after t, the
// token of an earlier grant: then everything the earlier holder left is
// unchanged. If there was a later grant, the call fails with a *ChangedError,
// at once or as soon as that grant is made during the wait. If the cluster has
// forgotten so old a token, the call fails with ErrTooOld. If t is larger than the
// token of any grant of this cluster, the call fails with a *FutureTokenError. For a key that was
// never granted, Inspect returns a token to use here. Do not use 0: 0 is too
// old for every key of a cluster that may have had a predecessor.
func IfToken(t fence.Token) Option {
	return func(r *acquireRequest) {
		r.options |= optIfToken
		r.cmd.Conditional, r.cmd.IfToken = true, machine.Token(t)
	}
}

// MaxWaiters makes the call fail with ErrTooManyWaiters if n requests wait for
// the key already. The failure comes at once, and nothing was changed. n is 1
// to 10,000; the default is 10,000. Spread applies n to the callers that share
// a name. A call that asks again after the loss of its session, since the cluster was out of
// reach, may have two requests until the lost session has ended: both count, for others and for itself.
func MaxWaiters(n int) Option {
	return func(r *acquireRequest) {
		if n < 1 || n > machine.MaxWaiters {
			r.refuse("MaxWaiters", "%d is not within 1 and %d", n, machine.MaxWaiters)
		}
		r.cmd.MaxWaiters = uint32(n)
	}
}

// Lazy makes Release return as soon as the lock has ended here, without waiting for the
// cluster. The client's next Acquire, of any key, takes the release along in the same
// message. So a caller that acquires and releases in a loop waits once in a cycle, instead
// of twice. Without a next Acquire the release is sent a millisecond later, and at once if
// another request waits for the key.
//
// The lock ends like any other: its context has ended when Release returns, and nobody is
// granted the key before. But when Release returns, others may find the key held for that
// millisecond and the time of a message, and if the cluster cannot be told, Release does
// not fail: the client keeps telling, reports to Trace.CleanupFailed once the release goes by
// itself, and the key stays taken for a TTL at most. If the process dies before the release
// was sent, the key is free after the TTL and the Delay, as if it were held, and Value tells
// the next holder that this one was lost. Do with Lazy does not wait for the cluster either.
// With Reentrant the option of the first call counts for all. HandOver waits, as for any
// lock. Lazy cannot be used with Elect.
func Lazy() Option {
	return func(r *acquireRequest) { r.options |= optLazy }
}

// Sticky leaves the key with this client after Release, for as long as nobody else asks for
// it: the client's next Acquire or TryAcquire of the key with Sticky and the same Meta then
// returns at once, without the cluster, under a fresh and larger token. Any other request
// for the key, TryAcquire and Ask included, and another goroutine's of this client too,
// recalls the key: the client gives it back at once, or at the next Release while a lock
// holds it. Sticky implies Lazy.
//
// Sticky is for keys that one process uses again and again, and others seldom. The price is
// paid by the others: they find the key held by this client until it has been recalled,
// which takes two messages, and a TryAcquire fails with a *HeldError, though its failure
// recalls the key. If this process dies or is cut off, the key is free after the TTL,
// although no lock held it.
//
// The locks end like any others: by loss, with the session's trust, by Break. One promise is
// weaker: the tokens of sticky locks rise for each key, but are in no order with the tokens
// of other keys. A resource that is written under several keys must not compare them. The
// cluster reserves a block of tokens with a grant of the key, so readers of Status see the
// first token of the block, with Holder.Sticky, and IfToken compares with the last: it may
// tell of a later lock that was none, and hides no lock.
//
// Every Acquire asks the cluster, as with Lazy, while a request for a key above waits, and if the
// sticky locks take too many tokens in a second: those of one client more than half a million,
// or those of all clients of the cluster a million. The meta that Trace.Acquiring returns is
// added to the grant only by a call that asks the cluster: others see the meta of that call.
//
// A client keeps 10,000 keys at most without a lock. These count for ErrTooManyKeys.
// Downgrade, Upgrade and SetValue match ErrWrongMode. HandOver gives the key away. Sticky
// can be combined with Lazy, Meta, MaxWaiters and Priority only, and not be used with
// AcquireAll and Elect.
func Sticky() Option {
	return func(r *acquireRequest) { r.options |= optSticky }
}

// Meta attaches m to the grant, for Inspect and Watch to show. m is copied, and
// may have up to 4 KiB when encoded; the encoding adds a few bytes to each key
// and value.
func Meta(m map[string]string) Option {
	meta := encodeMeta(m)
	return func(r *acquireRequest) {
		if len(meta) > machine.MaxMeta {
			r.refuse("Meta", "%d bytes when encoded exceed %d", len(meta), machine.MaxMeta)
		}
		r.cmd.Meta = meta
	}
}

// To add an option, write its function above, add a bit below unless the option
// can be combined with all others, and show the attribute in status.go if other
// clients may see it.

// optionSet is a set of options, with a bit for each option that cannot be
// combined with all others, in the order of reporting.
type optionSet uint16

const (
	optPermits optionSet = 1 << iota
	optPriority
	optDelay
	optIfToken
	optReentrant
	optTree
	optShared
	optLazy
	optSticky
)

// optionNames lists the names of the options, in the order of their bits.
var optionNames = [...]string{"Permits", "Priority", "Delay", "IfToken", "Reentrant", "Tree", "Shared", "Lazy", "Sticky"}

// applyOptions calls opts and refuses contradictory ones. The lock table would
// refuse most of them too, but only after a command was sent.
func (r *acquireRequest) applyOptions(opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(r)
		}
	}
	if r.options&optPermits != 0 {
		r.refuseOptions(optTree|optShared, "Permits")
	}
	if r.options&optTree != 0 {
		r.refuseOptions(optPriority, "Tree")
	}
	if r.options&optSticky != 0 {
		r.refuseOptions(optPermits|optDelay|optIfToken|optReentrant|optTree|optShared, "Sticky")
	}
	if r.options&optIfToken != 0 {
		r.refuseOptions(optReentrant, "IfToken")
	}
}

// refuseOptions sets the request's error if the request was given an option of
// set, which cannot be combined with partner.
func (r *acquireRequest) refuseOptions(set optionSet, partner string) {
	for i, name := range optionNames {
		if r.options&set&(1<<i) != 0 {
			r.refuse(name, "cannot be combined with %s", partner)
		}
	}
}

// refuse makes the call fail because the named option cannot be used.
func (r *acquireRequest) refuse(option, format string, args ...any) {
	r.setErr(configError(option, format, args...))
}

// setErr makes the call fail with err, unless an earlier option has failed it.
func (r *acquireRequest) setErr(err error) {
	if r.err == nil {
		r.err = err
	}
}
