package term_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

const stormShards = 24

// A player is the smallest caller of a group: it acquires the shards of its part, and
// releases the others once somebody waits for them. It begins anew when its session ends.
type player struct {
	m    *termtest.Member
	n    byte
	wake chan struct{} // size 1

	mu      sync.Mutex
	ended   bool
	part    machine.Part
	held    map[uint32]machine.Token
	wanted  map[machine.Token]bool // by others
	waiting map[uint64]uint32      // shards by seq
	seen    []uint64               // outcomes to be marked as seen
}

func (p *player) event(e machine.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case machine.EventPart:
		if part, err := machine.DecodePart([]byte(e.Value)); err == nil && part.Version > p.part.Version {
			p.part = part
		}
	case machine.EventGranted:
		if shard, ok := p.waiting[e.Seq]; ok {
			p.held[shard] = e.Token
			delete(p.waiting, e.Seq)
			p.seen = append(p.seen, e.Seq)
		}
	case machine.EventContended:
		p.wanted[e.Token] = true
	case machine.EventEnded:
		p.ended = true
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *player) play(ctx context.Context) {
	for life := byte(0); ctx.Err() == nil; life++ {
		p.live(ctx, machine.SessionKey{p.n, life, 7})
	}
}

// live is the life of one session.
func (p *player) live(ctx context.Context, key machine.SessionKey) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	id, seq := key.ID(), uint64(1)
	p.mu.Lock()
	p.ended, p.part, p.seen = false, machine.Part{}, nil
	p.held, p.waiting, p.wanted = make(map[uint32]machine.Token), make(map[uint64]uint32), make(map[machine.Token]bool)
	p.mu.Unlock()
	p.m.Claim(key)
	defer p.m.Detach(id)
	open := machine.Open{Session: id, Client: fmt.Sprint("p", p.n), Node: p.m.Member(), Boot: p.m.Boot(), TTL: uint64(termtest.DefaultTTL / time.Millisecond)}
	if o, err := p.m.Propose(ctx, open); err != nil || o.Code != machine.OK {
		return
	}
	p.m.Attach(id, p.event)
	var beats sync.WaitGroup
	defer beats.Wait()
	defer stop()
	beats.Go(func() {
		for ctx.Err() == nil {
			once, done := context.WithTimeout(ctx, termtest.DefaultTTL)
			_ = p.m.Beat(once, id)
			done()
			select {
			case <-ctx.Done():
			case <-time.After(termtest.DefaultTTL / 3):
			}
		}
	})
	if o, err := p.m.Propose(ctx, machine.Enlist{Session: id, Seq: seq, Group: "g", Shards: stormShards, Weight: 1}); err != nil || o.Code != machine.OK {
		return
	}
	for ctx.Err() == nil {
		cmd, shard, over := p.next(id, seq+1)
		switch {
		case over:
			return
		case cmd == nil:
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		seq++
		o, err := p.m.Propose(ctx, cmd)
		if err != nil {
			return
		}
		p.mu.Lock()
		if _, ok := cmd.(machine.Acquire); ok && o.Code == machine.Granted {
			p.held[shard] = o.Token
			delete(p.waiting, seq)
			p.seen = append(p.seen, seq)
		}
		p.mu.Unlock()
	}
}

// next returns the next command, and nil if there is nothing to do.
func (p *player) next(id machine.SessionID, seq uint64) (cmd machine.Command, shard uint32, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, 0, true
	}
	seen := p.seen
	for shard, token := range p.held {
		if p.wanted[token] && !slices.Contains(p.part.Mine, shard) {
			delete(p.held, shard)
			p.seen = nil
			return machine.Release{Session: id, Token: token, Seen: seen}, shard, false
		}
	}
	for s, shard := range p.waiting {
		if !slices.Contains(p.part.Mine, shard) {
			delete(p.waiting, s)
			return machine.Withdraw{Session: id, Seq: s}, shard, false
		}
	}
	for _, shard := range p.part.Mine {
		waits := false
		for _, s := range p.waiting {
			waits = waits || s == shard
		}
		if p.held[shard] == 0 && !waits {
			p.waiting[seq] = shard
			p.seen = nil
			return machine.Acquire{Session: id, Seq: seq, Key: machine.ShardKey("g", shard), Seen: seen}, shard, false
		}
	}
	return nil, 0, false
}

// Under any fault of the network and any change of the leader, the shards come to their
// callers once the faults are over, and the division is even.
func TestShardsFindTheirCallersAfterAStorm(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(3, 60)) {
		synctest.Test(t, func(t *testing.T) {
			c := termtest.New(t, termtest.Config{})
			c.Seed(seed)
			rng := rand.New(rand.NewPCG(seed, 11))
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			var members []*termtest.Member
			for i := range byte(4) {
				p := &player{m: c.Join(fmt.Sprint("m", i)), n: i + 1, wake: make(chan struct{}, 1)}
				members = append(members, p.m)
				wg.Go(func() { p.play(ctx) })
			}
			for range 20 {
				m := members[rng.IntN(len(members))]
				switch rng.IntN(6) {
				case 0:
					c.Lead()
				case 1:
					c.Depose()
				case 2:
					m.Isolate()
					time.Sleep(time.Duration(rng.IntN(15000)) * time.Millisecond)
					m.Heal()
				case 3:
					m.Reconnect()
				case 4:
					c.LeadFromSnapshot()
				default:
					m.SetFaults(termtest.Faults{
						Latency: time.Duration(rng.IntN(400)) * time.Millisecond, LoseAsk: rng.Float64() / 3,
						LoseAnswer: rng.Float64() / 3, Twice: rng.Float64() / 3, LosePush: rng.Float64() / 3,
					})
				}
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			for _, m := range members {
				m.SetFaults(termtest.Faults{})
				m.Reconnect()
			}
			time.Sleep(5 * termtest.DefaultTTL)
			c.View(func(m *machine.State) {
				st, _ := m.Group("g")
				sizes := make(map[uint32]int)
				by := make(map[uint32]machine.SessionID)
				for _, caller := range st.Callers {
					by[caller.ID] = caller.Session
					sizes[caller.ID] = 0
				}
				for shard, caller := range m.Assignment("g", nil) {
					sizes[caller]++
					if owner, token := m.Owner(machine.ShardKey("g", uint32(shard))); token == 0 || owner != by[caller] {
						t.Errorf("seed %d: shard %d of caller %d is held by %v", seed, shard, caller, owner)
					}
				}
				for id, n := range sizes {
					if len(sizes) != 4 || n != stormShards/4 {
						t.Errorf("seed %d: caller %d of %d has %d shards", seed, id, len(sizes), n)
					}
				}
			})
			stop()
			wg.Wait()
			for _, m := range members {
				m.Stop()
			}
		})
	}
}
