package cluster

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A goodbye is a process's own word that it has ended: its raft has returned from
// Shutdown, and the contexts of all its locks have ended. Whoever hears a goodbye
// may replace the voter at once. The word binds because a member believes it only
// on a stream of the very process that it is about: same name, same boot, as
// proved by the preamble of the stream. That gossip calls a member gone proves
// less: memberlist says so while the member still votes.

// maxGoodbyes bounds the voters told, and the other members told besides. A voter that
// replaces this one is among them, or hears of it from the leader.
const maxGoodbyes = 16

// goodbyeAudience lists the processes to be told of this one's end: the leader,
// the voters, and some of the others. Called while gossip still lists them.
func (n *Node) goodbyeAudience() (audience []member.Process) {
	leader, addr, attached := n.link.Leader()
	others, voters := 0, 0
	alive := n.gossip.Alive()
	rand.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
	for _, s := range alive {
		first := s.Meta.Voter || s.Meta.Leads != 0 || attached && s.Name == leader && s.Addr == addr
		switch {
		case s.Name == n.self.Name, !s.Meta.InCluster():
			continue
		case !first && others == maxGoodbyes, first && voters == maxGoodbyes:
			continue
		case !first:
			others++
		default:
			voters++
		}
		audience = append(audience, s.Process)
	}
	return audience
}

// sayGoodbye tells the audience that this process has ended, and waits for a short
// time until they have heard. The caller has ended raft and all locks.
func (n *Node) sayGoodbye(audience []member.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), timing.Goodbye)
	defer cancel()
	body := wire.Marshal(&wire.GoodbyeNotice{Name: n.self.Name, Boot: n.self.Boot})
	var told sync.WaitGroup
	for _, p := range audience {
		told.Go(func() {
			if _, err := n.peers.Ask(ctx, p, wire.Goodbye, body); err != nil {
				n.self.Log.Debug("goodbye not heard", "by", p, "error", err)
			}
		})
	}
	told.Wait()
}
