package gossip

import (
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wakeup"
)

const (
	// maxKnown bounds the processes that memberlist knows: the living, and the dead
	// until memberlist forgets them. A cluster of 1,000 members that restarts all its
	// processes has 2,000 for a while.
	maxKnown = 4096

	// maxUnproven bounds the living processes without a proof that memberlist knows.
	// From half of the bound on, each further process is dialled.
	maxUnproven = 32

	// maxGhosts bounds the dead among the known that were never proven. Beyond it a process
	// without a proof waits for a dial: a liar can have a ghost live and die with two
	// packets, and the dead must leave room for others.
	maxGhosts = 512

	// maxDeadOfName bounds the dead proven processes of one name, for the same reason.
	maxDeadOfName = 64

	// maxOfName bounds the living proven processes of one name: the present process, and
	// earlier ones not known to be dead yet. A certificate proves a name, and the boots
	// are free to its owner.
	maxOfName = 16

	// maxOfHost bounds the processes that were proven from one host. A name costs nothing
	// where members share a secret: without the bound one host could show as many names as
	// this member remembers, and the others' processes would find no room.
	maxOfHost = maxKnown / 4
)

// census decides which processes memberlist may take up: see "Ghosts" in the comment
// of the package. memberlist itself has no bound.
type census struct {
	more wakeup.One // a process waits to be dialled

	mu       sync.Mutex
	living   map[string]member.Process // by gossip name, as are all but ofName
	dead     map[string]grave
	ghosts   int              // of the dead
	deadOf   map[string]int   // proven dead processes of a name
	proven   map[string]proof // at most 2*maxKnown
	ofHost   map[string]int   // of proven
	unproven int              // of the living
	ofName   map[string]int   // proven living processes
	queue    queue            // to be dialled
	forgot   time.Time        // when the dead were looked through last
}

// proof is what a handshake has shown of a process.
type proof struct {
	voter bool   // with the voter role
	host  string // the other end of the connection; "": unknown
}

// grave is a process known as dead.
type grave struct {
	name   string
	since  time.Time
	proven bool // at its death
}

func newCensus() *census {
	return &census{
		more:   wakeup.NewOne(),
		living: make(map[string]member.Process), dead: make(map[string]grave), deadOf: make(map[string]int), proven: make(map[string]proof), ofHost: make(map[string]int),
		ofName: make(map[string]int), queue: newQueue(),
	}
}

// admission is the answer to a word about a living process.
type admission int

const (
	admitted admission = iota
	later              // once a handshake has proved the process
	noRoom
)

// admits answers memberlist's question about a living process. A process known as
// living is admitted always.
func (c *census) admits(m *memberlist.Node, p member.Process) admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, proven := c.proven[m.Name]
	if _, lives := c.living[m.Name]; lives {
		if !proven && c.unproven > maxUnproven/2 {
			c.wait(m) // for another try
		}
		return admitted
	}
	_, died := c.dead[m.Name]
	if !died && !c.room() {
		return noRoom
	}
	if proven {
		if c.ofName[p.Name] >= maxOfName || !died && !c.roomForDead(p.Name) {
			return noRoom
		}
		return admitted
	}
	if c.unproven < maxUnproven && (died || c.ghosts < maxGhosts || c.roomForGhosts()) {
		return admitted
	}
	c.wait(m)
	return later
}

// room reports whether another process may become known, and forgets the dead that
// memberlist has forgotten. The caller holds c.mu.
func (c *census) room() bool {
	if len(c.living)+len(c.dead) < maxKnown {
		return true
	}
	c.forgetDead()
	return len(c.living)+len(c.dead) < maxKnown
}

// roomForGhosts reports whether another process without a proof may become known and
// die, and forgets the dead that memberlist has forgotten. The caller holds c.mu.
func (c *census) roomForGhosts() bool {
	c.forgetDead()
	return c.ghosts < maxGhosts
}

// roomForDead reports whether another proven process of the name may die, and forgets the
// dead that memberlist has forgotten: a member that restarts every night has no more dead
// processes than one that has never restarted. The caller holds c.mu.
func (c *census) roomForDead(name string) bool {
	if c.deadOf[name] < maxDeadOfName {
		return true
	}
	c.forgetDead()
	return c.deadOf[name] < maxDeadOfName
}

// forgetDead forgets the dead that memberlist has forgotten. The caller holds c.mu.
func (c *census) forgetDead() {
	if time.Since(c.forgot) < time.Second {
		return // a flood must not cost a walk for each word
	}
	c.forgot = time.Now()
	// memberlist forgets the dead after half a minute, once it has looked after every
	// living member, one a second.
	known := 30*time.Second + time.Duration(len(c.living))*time.Second
	for name, d := range c.dead {
		if time.Since(d.since) > known {
			c.raise(name)
		}
	}
}

// bury notes a process as dead. The caller holds c.mu.
func (c *census) bury(name string, d grave) {
	c.dead[name] = d
	if d.proven {
		c.deadOf[d.name]++
	} else {
		c.ghosts++
	}
}

// raise takes a process off the list of the dead. The caller holds c.mu.
func (c *census) raise(name string) {
	d, ok := c.dead[name]
	if !ok {
		return
	}
	delete(c.dead, name)
	if !d.proven {
		c.ghosts--
	} else if c.deadOf[d.name]--; c.deadOf[d.name] == 0 {
		delete(c.deadOf, d.name)
	}
}

// note records the life or death of a process.
func (c *census) note(m *memberlist.Node, p member.Process, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, lived := c.living[m.Name]
	_, proven := c.proven[m.Name]
	switch {
	case alive == lived:
		return
	case alive:
		c.living[m.Name] = p
		c.raise(m.Name)
	default:
		delete(c.living, m.Name)
		c.bury(m.Name, grave{p.Name, time.Now(), proven})
	}
	switch {
	case proven && alive:
		c.ofName[p.Name]++
	case proven:
		c.leaveName(p.Name)
	case alive:
		if c.unproven++; c.unproven > maxUnproven/2 {
			c.wait(m)
		}
	default:
		c.unproven--
	}
}

// shows reports whether a handshake has proved the process.
func (c *census) shows(p member.Process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.proven[gossipName(p)]
	return ok
}

// shown reports whether a handshake has shown the process with the voter role.
func (c *census) shown(p member.Process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proven[gossipName(p)].voter
}

func (c *census) leaveName(name string) {
	if c.ofName[name]--; c.ofName[name] == 0 {
		delete(c.ofName, name)
	}
}

// prove notes that a handshake has proved a process. The result is the word about the
// process that has waited for the proof, or nil. A process is not proven if its host has
// shown as many living ones as it may: gossip's word about it then stays a word.
func (c *census) prove(p member.Process, voter bool, host string) *memberlist.Node {
	name := gossipName(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.proven[name]; ok {
		known.voter = known.voter || voter
		c.proven[name] = known
		return nil
	}
	if host != "" && c.ofHost[host] >= maxOfHost && !c.forgetProof(func(o proof) bool { return o.host == host }) {
		return nil
	}
	if len(c.proven) >= 2*maxKnown {
		c.forgetProof(func(proof) bool { return true })
	}
	c.proven[name] = proof{voter, host}
	if host != "" {
		c.ofHost[host]++
	}
	told, waits := c.queue.waiting[name]
	c.queue.remove(name)
	if _, lives := c.living[name]; lives {
		c.unproven--
		c.ofName[p.Name]++
		return nil
	}
	if !waits {
		return nil
	}
	return &told
}

// knows reports whether a handshake has proved a process of the gossip name.
func (c *census) knows(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.proven[name]
	return ok
}

// forgetProof makes room for a proof: the proof of any process that gossip does not
// know, of those that may go, is forgotten. It returns false if there is none. The caller
// holds c.mu.
func (c *census) forgetProof(may func(proof) bool) bool {
	for name, p := range c.proven {
		_, lives := c.living[name]
		if _, died := c.dead[name]; lives || died || !may(p) {
			continue
		}
		delete(c.proven, name)
		if c.ofHost[p.host]--; c.ofHost[p.host] <= 0 {
			delete(c.ofHost, p.host)
		}
		return true
	}
	return false
}
