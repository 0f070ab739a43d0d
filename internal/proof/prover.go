package proof

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// Config is everything a Prover needs. Every field must be set.
type Config struct {
	Self member.Self

	// Members returns every known process. The channel of Gossiped is closed at the
	// next change of Members.
	Members  func() []member.Sighting
	Gossiped func() <-chan struct{}

	// Wanted reports whether anybody on this node needs proof now. Without need the
	// Prover dials nobody and only listens, so that in a large cluster a restarted
	// process is not dialled by every member.
	Wanted func() bool

	// Dial makes a handshake with the process, and ends the connection. Dial itself
	// tells Answered about the handshake, unless the answerer proves neither its name nor
	// the voter role, and returns the answerer. Dial fails if
	// nobody has answered.
	Dial func(ctx context.Context, to member.Process) (member.Process, error)

	// Ended is called for each process that has ended, once, and Shared for an
	// address that two processes answer in turn. Neither may block.
	Ended  func(name string, boot uint64)
	Shared func(addr string, a, b member.Process)
}

// A Prover gathers proof of the ends of processes. Every method may be called from
// any goroutine; none blocks but Run.
type Prover struct {
	cfg     Config
	look    wakeup.One
	changed wakeup.All

	mu        sync.Mutex
	kernel    *kernel
	suspects  map[member.Process]suspicion // at most maxSuspects
	farewells map[member.Process]suspicion // members that said goodbye: do they answer still?

	manyFarewells int                     // with so many of them, those of processes that nobody knows are forgotten
	rested        map[member.Process]bool // examined in vain: not a suspect by gossip any more
}

// suspicion is a process that may have ended.
type suspicion struct {
	due     time.Time // of the next dial
	dialing bool
}

const (
	maxSuspects = 256
	maxRested   = 2048
	maxDials    = 16
)

// New returns a Prover without any knowledge.
func New(cfg Config) *Prover {
	return &Prover{cfg: cfg, look: wakeup.NewOne(), kernel: newKernel(), manyFarewells: maxSuspects, suspects: make(map[member.Process]suspicion), farewells: make(map[member.Process]suspicion), rested: make(map[member.Process]bool)}
}

// Ended reports whether the process has ended for certain. False means: unknown.
func (p *Prover) Ended(name string, id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kernel.ended[boot{name, id}]
}

// Changed returns a channel that is closed when the next end is proved.
func (p *Prover) Changed() <-chan struct{} { return p.changed.Wait() }

// Goodbye takes the farewell of a process. The caller has checked that the
// farewell came over a stream with this very name and boot in its preamble.
//
// A holder of a shared secret can forge the preamble. So the process is dialled
// timing.GoodbyeDoubt later, where gossip saw it: if it answers, it has not ended.
func (p *Prover) Goodbye(name string, id uint64) {
	p.learn("", func(k *kernel) found { return k.goodbye(boot{name, id}) })
	members := p.cfg.Members()
	for _, m := range members {
		if m.Name != name || m.Boot != id || m.Addr == "" || p.cfg.Self.Is(m.Process) {
			continue
		}
		p.mu.Lock()
		if _, known := p.farewells[m.Process]; !known {
			p.forgetFarewells(members)
			p.farewells[m.Process] = suspicion{due: time.Now().Add(timing.GoodbyeDoubt)}
		}
		p.mu.Unlock()
	}
	p.look.Wake()
}

// forgetFarewells forgets the goodbyes of processes that gossip knows no more: nobody looks
// at them while this node follows a leader. The caller holds p.mu.
func (p *Prover) forgetFarewells(members []member.Sighting) {
	if len(p.farewells) < p.manyFarewells {
		return
	}
	listed := make(map[member.Process]bool)
	for _, m := range members {
		listed[m.Process] = true
	}
	maps.DeleteFunc(p.farewells, func(s member.Process, at suspicion) bool { return !at.dialing && !listed[s] })
	p.manyFarewells = max(maxSuspects, 2*len(p.farewells))
}

// verify dials a process that has said goodbye.
func (p *Prover) verify(ctx context.Context, s member.Process) {
	who, err := p.dial(ctx, s)
	b := boot{s.Name, s.Boot}
	p.mu.Lock()
	delete(p.farewells, s)
	forged := err == nil && who.Name == s.Name && who.Boot == s.Boot && p.kernel.lives(b)
	p.mu.Unlock()
	if forged {
		p.cfg.Self.Refused.Note(refused.Claim, s.Name, "a goodbye of a process that lives")
		p.changed.Wake()
	}
	p.look.Wake()
}

// Answered takes the result of any handshake of this node as the dialler, begun at
// begun. The process answers at addr, and claims who.Addr. The answerer need not be
// the wanted process.
func (p *Prover) Answered(begun time.Time, addr string, who member.Process) {
	if who.Name == "" || who.Boot == 0 {
		return
	}
	p.learn(addr, func(k *kernel) found {
		return k.answered(time.Now(), begun, addr, boot{who.Name, who.Boot}, who.Addr)
	})
}

// Suspect has a process looked at soon: raft cannot reach it, for example.
func (p *Prover) Suspect(s member.Process) {
	if s.Boot == 0 || s.Addr == "" || p.cfg.Self.Is(s) {
		return
	}
	p.mu.Lock()
	p.suspect(s)
	p.mu.Unlock()
	p.look.Wake()
}

// Wake has Run look at the members again, after Wanted has become true.
func (p *Prover) Wake() { p.look.Wake() }

// suspect adds a suspect. The caller holds p.mu.
func (p *Prover) suspect(s member.Process) {
	if _, known := p.suspects[s]; known || len(p.suspects) >= maxSuspects || p.kernel.ended[boot{s.Name, s.Boot}] {
		return
	}
	p.suspects[s] = suspicion{due: time.Now()}
}

// learn gives the kernel an observation and tells the consequences.
func (p *Prover) learn(addr string, observe func(*kernel) found) {
	p.mu.Lock()
	f := observe(p.kernel)
	if f.again && addr != "" {
		if at := p.kernel.places[addr]; at != nil && at.holder != (boot{}) {
			older := member.Process{Name: at.holder.name, Boot: at.holder.id, Addr: addr}
			if _, known := p.suspects[older]; !known && len(p.suspects) < maxSuspects && !p.cfg.Self.Is(older) {
				p.suspects[older] = suspicion{due: time.Now().Add(timing.ProofAgain)}
			}
		}
	}
	p.mu.Unlock()
	for _, b := range f.ended {
		p.cfg.Ended(b.name, b.id)
	}
	if len(f.shared) == 2 {
		a, b := f.shared[0], f.shared[1]
		p.cfg.Shared(addr, member.Process{Name: a.name, Boot: a.id, Addr: addr}, member.Process{Name: b.name, Boot: b.id, Addr: addr})
	}
	if len(f.ended) > 0 {
		p.changed.Wake()
	}
	if f.again {
		p.look.Wake()
	}
}

// Run dials suspects until ctx ends, and returns when all dials have ended.
func (p *Prover) Run(ctx context.Context) {
	var dials sync.WaitGroup
	defer dials.Wait()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		gossiped := p.cfg.Gossiped()
		if p.cfg.Wanted() {
			next := p.dialDue(ctx, &dials)
			t.Reset(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-gossiped:
		case <-p.look:
		case <-t.C:
		}
	}
}

// dialDue dials each due suspect, and each that has said goodbye and is due, and returns the time
// until the next is.
func (p *Prover) dialDue(ctx context.Context, dials *sync.WaitGroup) time.Duration {
	members := p.cfg.Members()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range superseded(members) {
		if !p.cfg.Self.Is(s) && !p.rested[s] {
			p.suspect(s)
		}
	}
	maps.DeleteFunc(p.suspects, func(s member.Process, _ suspicion) bool { return p.kernel.ended[boot{s.Name, s.Boot}] })
	return min(
		begin(p.farewells, alive(members), func(s member.Process) { dials.Go(func() { p.verify(ctx, s) }) }),
		begin(p.suspects, nil, func(s member.Process) {
			newer := newest(members, s.Name)
			dials.Go(func() { p.examine(ctx, s, newer) })
		}))
}

// alive returns the processes that gossip takes for alive.
func alive(members []member.Sighting) map[member.Process]bool {
	set := make(map[member.Process]bool)
	for _, m := range members {
		if m.Alive {
			set[m.Process] = true
		}
	}
	return set
}

// begin has those of a list dialled that are due, maxDials at a time, those in first before others and
// then in order, and returns the time until the next is due.
func begin(list map[member.Process]suspicion, first map[member.Process]bool, dial func(member.Process)) time.Duration {
	now, next, busy := time.Now(), time.Hour, 0
	var due []member.Process
	for s, at := range list {
		switch {
		case at.dialing:
			busy++
		case at.due.After(now):
			next = min(next, at.due.Sub(now))
		default:
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b member.Process) int {
		if first[a] != first[b] {
			if first[a] {
				return -1
			}
			return 1
		}
		return list[a].due.Compare(list[b].due)
	})
	for _, s := range due[:min(len(due), max(0, maxDials-busy))] {
		list[s] = suspicion{dialing: true}
		dial(s)
	}
	return next
}

// superseded returns the processes with a later process of the same name, or at the
// same address, that gossip takes for alive.
func superseded(members []member.Sighting) (out []member.Process) {
	names, addrs := make(map[string]uint64), make(map[string]uint64)
	for _, m := range members {
		if m.Alive {
			names[m.Name] = max(names[m.Name], m.Boot)
			addrs[m.Addr] = max(addrs[m.Addr], m.Boot)
		}
	}
	for _, m := range members {
		if m.Boot < names[m.Name] || m.Boot < addrs[m.Addr] {
			out = append(out, m.Process)
		}
	}
	return out
}

// newest returns the latest process of a name that gossip takes for alive.
func newest(members []member.Sighting, name string) (p member.Process) {
	for _, m := range members {
		if m.Alive && m.Name == name && m.Boot > p.Boot {
			p = m.Process
		}
	}
	return p
}

// examine dials a suspect, and before the suspect its successor of the same name:
// gossip's word about the successor needs a handshake.
func (p *Prover) examine(ctx context.Context, s, newer member.Process) {
	again := false
	if newer.Boot > s.Boot && newer.Addr != s.Addr && !p.cfg.Self.Is(newer) && !p.shown(newer) {
		if _, err := p.dial(ctx, newer); err != nil {
			again = true
		}
	}
	if p.cfg.Self.Is(newer) {
		p.learn("", func(k *kernel) found { return k.show(boot{newer.Name, newer.Boot}) })
	}
	who, err := p.dial(ctx, s)
	observe := func(refused bool) {
		p.learn("", func(k *kernel) found {
			f := k.unanswered(time.Now(), boot{s.Name, s.Boot}, s.Addr, refused)
			again = again || f.again
			return f
		})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		observe(errors.Is(err, syscall.ECONNREFUSED))
	case who.Name == s.Name && who.Boot == s.Boot:
		again = newer.Boot > s.Boot // two processes of one name: until one of them is gone
	default:
		observe(who.Name == s.Name && who.Boot > s.Boot)
		// A later process whose certificate proves neither a name nor the voter role is never
		// shown, and no further dial would prove more.
		again = again || newer.Boot > s.Boot && p.shown(newer) || p.pending(s, who)
	}
	p.mu.Lock()
	if again && !p.kernel.ended[boot{s.Name, s.Boot}] {
		p.suspects[s] = suspicion{due: time.Now().Add(timing.ProofAgain)}
	} else {
		delete(p.suspects, s)
		if len(p.rested) >= maxRested {
			clear(p.rested) // at worst some dials more
		}
		p.rested[s] = true
	}
	p.mu.Unlock()
	p.look.Wake()
}

func (p *Prover) dial(ctx context.Context, to member.Process) (member.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	return p.cfg.Dial(ctx, to)
}

// pending reports whether one more dial with the same answerer proves the end of s.
func (p *Prover) pending(s, who member.Process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.kernel.places[s.Addr]
	return at != nil && !at.shared && at.holder == boot{s.Name, s.Boot} && at.other == boot{who.Name, who.Boot} &&
		who.Boot > s.Boot && who.Addr == s.Addr
}

// shown reports whether a handshake has shown this boot of the name, or a later one.
func (p *Prover) shown(s member.Process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kernel.newest[s.Name] >= s.Boot
}
