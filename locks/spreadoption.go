package locks

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// SpreadOption changes how a caller of Spread takes part. If an option cannot be
// used, Spread fails with a *cluster.ConfigError before anything is sent.
//
// Weight, Succeeds and Prepare are the caller's own. Drain, Grace and MaxMoves are
// the group's: the values of the caller that enlisted last count for all callers.
// Trace.Part and Shards.Options tell them.
type SpreadOption func(*spreadOptions)

// spreadOptions are the options of a call of Spread.
type spreadOptions struct {
	weight   uint32
	succeeds string
	prepare  func(ctx context.Context, shard int) error
	drain    time.Duration
	grace    time.Duration
	maxMoves uint32
	err      error // of the first option that cannot be used
}

// defaultWeight is the weight of a caller without the option Weight.
const defaultWeight = 100

// Weight is the caller's weight, 0 to 1,000,000; the default is 100. A caller gets
// the part of the shards that its weight is of the weights of all callers, rounded
// so that no caller is a whole shard off. A caller of weight 0 owns nothing and
// stands by. The weight of a running Spread does not change: a process that is to give
// up its shards ends the call, which frees the shards as every leave does, and may then
// call Spread with Weight(0).
func Weight(w int) SpreadOption {
	return func(o *spreadOptions) {
		if w < 0 || w > maxWeight {
			o.refuse("Weight", "%d is not within 0 and %d", w, maxWeight)
			return
		}
		o.weight = uint32(w)
	}
}

// Succeeds has this caller take the place of the caller on the client of the given
// name, 1 to 128 bytes of valid UTF-8: this caller owns nothing while that caller is
// there, and gets all of that caller's shards in one step when that caller leaves
// or its session ends. If there is no such caller, Succeeds has no effect. A
// deployment that starts each new process beside the old one so moves each shard
// once.
func Succeeds(client string) SpreadOption {
	return func(o *spreadOptions) {
		if err := checkText("Succeeds", client, machine.MaxName); err != nil && o.err == nil {
			o.err = err
		}
		o.succeeds = client
	}
}

// Prepare has Spread call f before the caller asks for a shard, to warm up: to fill
// caches, to open files. While f runs, the present owner serves on. f holds nothing,
// and must not write what only the owner may write. Calls for several shards run
// side by side.
//
// If f returns an error, or does not return within a TTL, the leader chooses another
// caller for the shard, if there is one, and chooses this caller no more for a TTL.
// The context of f ends after a TTL, when the shard is assigned to another caller, and
// when the caller's context ends. Spread waits until f has returned.
func Prepare(f func(ctx context.Context, shard int) error) SpreadOption {
	return func(o *spreadOptions) {
		if f == nil {
			o.refuse("Prepare", "nil")
		}
		o.prepare = f
	}
}

// Drain gives a work time to end when its shard is to be handed over to another
// caller that waits for it: the lock's Asked channel is closed, and the work's
// context ends d later, with the cause ErrHandedOver. A work that returns earlier
// hands over earlier. Without Drain, or with d = 0, the context ends at once. The
// shard serves until the next owner waits for it, in any case. d is in whole
// milliseconds, up to 24 hours.
//
// Drain does not apply when the caller's own context ends, nor when the lock is
// lost.
func Drain(d time.Duration) SpreadOption {
	return func(o *spreadOptions) { o.drain = o.duration("Drain", d) }
}

// Grace keeps the shards of a caller that has left for d, owned by nobody, for the
// next caller on a client of the same name (see Options.Name). A process that
// restarts within d so finds its shards again, and no shard moves. Without Grace,
// or with d = 0, the shards of a caller that leaves go to the others at once. d is
// in whole milliseconds, up to 24 hours.
//
// After a crash d counts from the end of the session, which comes a TTL after the
// last beat.
func Grace(d time.Duration) SpreadOption {
	return func(o *spreadOptions) { o.grace = o.duration("Grace", d) }
}

// MaxMoves bounds how many shards may be on their way from a caller that serves to
// another at a time, when shards are moved for balance only. Shards without an owner
// do not count and do not wait. n is 1 to 16,384; the default is a tenth of the
// shards, and at least 1.
func MaxMoves(n int) SpreadOption {
	return func(o *spreadOptions) {
		if n < 1 || n > MaxShards {
			o.refuse("MaxMoves", "%d is not within 1 and %d", n, MaxShards)
			return
		}
		o.maxMoves = uint32(n)
	}
}

// newSpreadOptions applies opts to the defaults.
func newSpreadOptions(opts []SpreadOption) spreadOptions {
	o := spreadOptions{weight: defaultWeight}
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	return o
}

// duration returns d if d can be used as the named option.
func (o *spreadOptions) duration(option string, d time.Duration) time.Duration {
	switch {
	case d < 0 || d > maxGroupDelay:
		o.refuse(option, "%v is not within 0 and %v", d, maxGroupDelay)
	case d%time.Millisecond != 0:
		o.refuse(option, "%v is not in whole milliseconds", d)
	}
	return d
}

// refuse makes the call fail because the named option cannot be used, unless an
// earlier option has failed the call.
func (o *spreadOptions) refuse(option, format string, args ...any) {
	if o.err == nil {
		o.err = configError(option, format, args...)
	}
}
