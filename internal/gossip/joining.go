package gossip

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

const (
	seekers  = 8   // about so many members seek at a time
	maxTries = 16  // addresses tried at a time, and in a round
	maxFirst = 512 // addresses of Join tried in the first round

	maxStored = 64 // living members whose addresses are stored without a proof
	maxStores = 8  // writes of addresses at once, and one each timing.GossipStore
)

// joiner looks for other members for as long as the node runs: often while this
// member sees no other one or is in no cluster, rarely after that. The search
// never ends, because memberlist forgets a member hidden by a partition of half a
// minute.
//
// An address is unseen if no living member of this cluster is known there: a member
// that gossip lists, and that a handshake has proved, since any member can invent
// others. A cluster could be founded at an unseen address, beside this one. Whether this
// cluster meets the new cluster in time depends on the pause while an address is
// unseen: see "Why a founded cluster waits" in package founding.
type joiner struct {
	cfg       Config
	members   *members
	addresses *addresses
	join      func(addr string) error // exchanges the lists of members with an address
	proven    func(member.Process) bool
	tried     chan struct{} // closed after the first round

	// Of run alone.
	changed <-chan struct{} // the members have changed since the addresses were stored
	due     time.Time       // the addresses are stored then; zero: not changed
	paid    time.Time       // the writes so far are paid for then, at one each timing.GossipStore
}

// run tries addresses, round after round, until ctx ends. The first round tries every
// address of Join, since the founding waits for it: a cluster at an address that was not
// tried would be founded beside. Each later round tries some of many addresses, others
// each time.
func (j *joiner) run(ctx context.Context) {
	j.changed = j.members.changed.Wait()
	for first := true; ; first = false {
		addrs := j.addresses.list(ctx)
		unseen := j.unseen(addrs)
		if !first && j.inCluster() {
			addrs, unseen = j.sample(addrs, unseen)
		}
		if first {
			j.tryAll(ctx, addrs[:min(len(addrs), j.addresses.joins+maxTries)])
			close(j.tried)
		} else {
			addrs = someOf(addrs, maxTries)
			j.try(addrs)
		}
		if !j.rest(ctx, j.pause(len(addrs), len(unseen))) {
			return
		}
	}
}

// tryAll tries addresses, maxTries at a time.
func (j *joiner) tryAll(ctx context.Context, addrs []string) {
	for batch := range slices.Chunk(addrs, maxTries) {
		if ctx.Err() == nil {
			j.try(batch)
		}
	}
}

// someOf returns n of the addresses at random, or all in their order.
func someOf(addrs []string, n int) []string {
	if len(addrs) <= n {
		return addrs
	}
	some := slices.Clone(addrs)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some[:n]
}

func (j *joiner) inCluster() bool { return j.cfg.Cluster() != (machine.ClusterID{}) }

// known returns the living members that a handshake has proved, this one included.
func (j *joiner) known() []member.Sighting {
	return slices.DeleteFunc(j.members.alive(), func(s member.Sighting) bool { return !j.cfg.Self.Is(s.Process) && !j.proven(s.Process) })
}

// names returns the number of names among the known members. A liar can prove many
// processes of its own name.
func (j *joiner) names() int {
	known := j.known() // sorted by name
	return len(slices.CompactFunc(known, func(a, b member.Sighting) bool { return a.Name == b.Name }))
}

// unseen returns the addresses without a known living member.
func (j *joiner) unseen(addrs []string) []string {
	alive := j.known()
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		return slices.ContainsFunc(alive, func(s member.Sighting) bool { return s.Addr == addr })
	})
}

// sample returns the addresses that a member of a cluster tries in a round, and
// the unseen ones among them. These are the unseen addresses, and a random
// address besides, in case two halves of the members have lost sight of each other.
// In a large cluster some members suffice, and the others try nothing in this round: a
// join exchanges the lists of all members, and all members have the same few addresses.
func (j *joiner) sample(addrs, unseen []string) (tries, sought []string) {
	if rand.N(j.names()+1) > seekers {
		return nil, nil
	}
	sought = someOf(unseen, maxTries-1)
	tries = slices.Clone(sought)
	if len(addrs) > 0 {
		tries = append(tries, addrs[rand.N(len(addrs))])
	}
	return tries, sought
}

// try joins the addresses in parallel and waits for all of them.
func (j *joiner) try(addrs []string) {
	var tries sync.WaitGroup
	for _, addr := range addrs {
		tries.Go(func() {
			err := j.join(addr)
			j.addresses.tried(addr, err)
			if err != nil {
				j.cfg.Self.Log.Debug("join", "error", err)
			}
		})
	}
	tries.Wait()
}

// pause returns the time until the next round: a base, and a random part below
// the base, so that members do not try in step. After a round with unseen
// addresses the pause is below timing.Seek.
func (j *joiner) pause(tries, unseen int) time.Duration {
	base := timing.JoinSettled // and in a large cluster, after a round without a try
	switch {
	case j.names() <= 1 && tries > 0:
		base = timing.JoinAlone
	case unseen > 0:
		base = timing.Seek / 2
	case !j.inCluster():
		base = timing.JoinUnfounded
	}
	return base + rand.N(base)
}

// rest waits, and stores the addresses of the living members after changes. Changes within
// timing.Seek are stored together: a flood of news must not cost a list of all members for
// each. Of many writes, each of which waits for the disk, one is done each
// timing.GossipStore, since a member that comes and goes is no reason to keep the disk busy.
// The result is false if ctx has ended.
func (j *joiner) rest(ctx context.Context, pause time.Duration) bool {
	over := time.After(pause)
	for {
		var due <-chan time.Time
		if !j.due.IsZero() {
			due = time.After(time.Until(j.due))
		}
		select {
		case <-ctx.Done():
			return false
		case <-over:
			return true
		case <-j.changed:
			j.changed, j.due = nil, j.nextStore(time.Now())
		case <-due:
			j.changed, j.due = j.members.changed.Wait(), time.Time{}
			j.rememberAlive()
		}
	}
}

// nextStore returns the time of the next write of addresses, after a change now.
func (j *joiner) nextStore(now time.Time) time.Time {
	next := now.Add(timing.Seek)
	if earliest := j.paid.Add(-(maxStores - 1) * timing.GossipStore); earliest.After(next) {
		next = earliest
	}
	if j.paid.Before(next) {
		j.paid = next
	}
	j.paid = j.paid.Add(timing.GossipStore)
	return next
}

// rememberAlive stores the addresses of the other living members, if there are
// any, for the next start. Of many members the proved ones are stored: the store keeps
// few addresses, and invented members would take the room.
func (j *joiner) rememberAlive() {
	list := j.members.alive()
	if len(list) > maxStored {
		list = j.known()
	}
	var addrs []string
	for _, s := range list {
		if !j.cfg.Self.Is(s.Process) {
			addrs = append(addrs, s.Addr)
		}
	}
	if len(addrs) == 0 {
		return
	}
	if err := j.cfg.Remember(addrs); err != nil {
		j.cfg.Self.Log.Warn("last known members not stored", "error", err,
			"next", "check the disk of Dir: after a restart this member knows the addresses of Join alone")
	}
}
