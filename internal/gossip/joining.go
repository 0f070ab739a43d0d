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
	seekers  = 8  // about so many members seek at a time
	maxTries = 16 // addresses tried in a round
)

// joiner looks for other members for as long as the node runs: often while this
// member sees no other one or is in no cluster, rarely after that. The search
// never ends, because memberlist forgets a member hidden by a partition of half a
// minute.
//
// An address is unseen if no living member of this cluster is known there. A
// cluster could be founded at an unseen address, beside this one. Whether this
// cluster meets the new cluster in time depends on the pause while an address is
// unseen: see "Why a founded cluster waits" in package founding.
type joiner struct {
	cfg       Config
	members   *members
	addresses *addresses
	join      func(addr string) error // exchanges the lists of members with an address
	tried     chan struct{}           // closed after the first round
}

// run tries addresses, round after round, until ctx ends.
func (j *joiner) run(ctx context.Context) {
	for first := true; ; first = false {
		addrs := j.addresses.list(ctx)
		unseen := j.unseen(addrs)
		if !first && j.inCluster() {
			addrs, unseen = j.sample(addrs, unseen)
		}
		addrs = addrs[:min(len(addrs), maxTries)]
		j.try(addrs)
		if first {
			close(j.tried)
		}
		if !j.rest(ctx, j.pause(len(addrs), len(unseen))) {
			return
		}
	}
}

func (j *joiner) inCluster() bool { return j.cfg.Cluster() != (machine.ClusterID{}) }

// unseen returns the addresses without a known living member.
func (j *joiner) unseen(addrs []string) []string {
	alive := j.members.alive()
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		return slices.ContainsFunc(alive, func(s member.Sighting) bool { return s.Addr == addr })
	})
}

// sample returns the addresses that a member of a cluster tries in a round, and
// the unseen ones among them. These are the unseen addresses, and a random
// address besides, in case two halves of the members have lost sight of each other.
// In a large cluster some members suffice: the others leave out the unseen
// addresses in this round.
func (j *joiner) sample(addrs, unseen []string) (tries, sought []string) {
	if rand.N(len(j.members.alive())+1) <= seekers {
		sought = unseen[:min(len(unseen), maxTries-1)]
	}
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
			if err := j.join(addr); err != nil {
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
	base := timing.JoinSettled // and in a large cluster, after a round that left out the unseen
	switch {
	case len(j.members.alive()) <= 1 && tries > 0:
		base = timing.JoinAlone
	case unseen > 0:
		base = timing.Seek / 2
	case !j.inCluster():
		base = timing.JoinUnfounded
	}
	return base + rand.N(base)
}

// rest waits, and stores the addresses of the living members at each change
// meanwhile. The result is false if ctx has ended.
func (j *joiner) rest(ctx context.Context, pause time.Duration) bool {
	changed := j.members.changed.Wait()
	over := time.After(pause)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over:
			return true
		case <-changed:
			changed = j.members.changed.Wait()
			j.rememberAlive()
		}
	}
}

// rememberAlive stores the addresses of the other living members, if there are
// any, for the next start.
func (j *joiner) rememberAlive() {
	var addrs []string
	for _, s := range j.members.alive() {
		if !j.cfg.Self.Is(s.Process) {
			addrs = append(addrs, s.Addr)
		}
	}
	if len(addrs) == 0 {
		return
	}
	if err := j.cfg.Remember(addrs); err != nil {
		j.cfg.Self.Log.Warn("last known members not stored", "error", err)
	}
}
