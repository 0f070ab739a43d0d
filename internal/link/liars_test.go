package link

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// drama is a random history of elections beside false leaders, which is the seed's.
type drama struct {
	s      *stage
	r      *rand.Rand
	script []string // what happens, for a failure
	voters []string // the true ones
	dead   []string // a minority of them
	liars  []*host
	far    time.Duration // one way to a true voter
	known  bool          // the member knows the voters otherwise than by gossip
	leader string        // the true one
	term   uint64
}

// TestNoLiarKeepsAMemberFromItsLeader has random liars, which hold certificates of the voter role and are
// no voters, beside random elections among three or five voters, of which a majority is always in
// reach. After an election the member is without its leader for four seconds and some questions at most, and with a leader
// that answers it is not at all.
//
// No liar is a true voter or has the name of one, and the first leader has served the member before
// they come: SECURITY.md says what happens otherwise.
func TestNoLiarKeepsAMemberFromItsLeader(t *testing.T) {
	first, err := testrounds.Seed(rand.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	for i := range testrounds.Rounds(5, 400) {
		seed := first + uint64(i)
		onStage(t, func(t *testing.T, s *stage) {
			d := &drama{s: s, r: rand.New(rand.NewPCG(seed, 0)), term: 5}
			d.cast()
			for range 1 + d.r.IntN(3) {
				d.act()
				if t.Failed() {
					t.Errorf("WARDMOTE_SEED=%d: %s", seed, strings.Join(d.script, "; "))
					return
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// note adds a line to the script.
func (d *drama) note(format string, args ...any) {
	d.script = append(d.script, fmt.Sprintf(format, args...))
}

// one returns one of several values by chance.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// cast brings in the voters, and has the first leader serve the member.
func (d *drama) cast() {
	s, r := d.s, d.r
	d.voters = []string{"a", "b", "c", "d", "e"}[:one(r, 3, 5)]
	d.far = one(r, 0, 0, 20*time.Millisecond, 60*time.Millisecond, 150*time.Millisecond)
	named := r.IntN(2) == 0
	for _, name := range d.voters {
		h := s.host(name, 0)
		h.votes, h.list, h.named, h.far, h.slow = true, d.voters, named, 2*d.far, d.far
		h.setAnswer(confirms)
	}
	d.known = r.IntN(4) > 0
	if d.known {
		s.set(func() { s.voters = slices.Clone(d.voters) })
	}
	served := one(r, time.Second, time.Second+2*timing.DirectMost)
	d.note("%d voters, %v away, named %v, known %v, the first leader serves for %v", len(d.voters), d.far, named, d.known, served)
	for _, name := range d.voters {
		s.know(name, votes)
	}
	d.elect("a")
	s.gossip("a", leads(d.term), votes)
	time.Sleep(served)
	s.attachedTo("a")
}

// liar brings in a false leader at some places.
func (d *drama) liar() {
	s, r := d.s, d.r
	n := len(d.liars)
	places := one(r, 1, 1, 2, 10, 60, 120)
	base := fmt.Sprint("x", n, ".")
	h := s.host(base+"0", one(r, max(d.term, 1), d.term+1, d.term+2, 1<<62, math.MaxUint64))
	h.votes = r.IntN(4) > 0
	h.fickle = r.IntN(2) == 0
	h.rising = r.IntN(2) == 0 && h.term < math.MaxUint64
	h.named = r.IntN(2) == 0
	h.coy = one(r, 0, 0, 1, 5)
	h.ttl = one[uint64](r, 1, 2000, 30_000)
	h.far = one(r, 0, 0, 30*time.Millisecond)
	answer := r.IntN(3)
	h.setAnswer([]func(*stream.Request){confirms, with(wire.CodeNotLeader), silence}[answer])
	frozen := r.IntN(2) == 0
	for i := range one(r, 0, 0, 3, 8) {
		f := s.host(fmt.Sprint(base, "filler", i), 0)
		f.votes, f.frozen = true, frozen
		if !frozen {
			f.tell(fmt.Sprint(base, r.IntN(places)), h.term)
		}
		h.list = append(h.list, f.name)
	}
	if r.IntN(2) == 0 {
		h.list = append(h.list, base+"0")
	}
	if r.IntN(3) == 0 {
		h.list = append(h.list, d.voters...)
	}
	d.note("a liar at %d places: term %d, votes %v, fickle %v, rising %v, named %v, coy %d, TTL %d, %v away, answer %d, voters %v, frozen %v",
		places, h.term, h.votes, h.fickle, h.rising, h.named, h.coy, h.ttl, h.far, answer, h.list, frozen)
	tell := one(r, math.MaxUint64, h.term)
	for i := range places {
		name := fmt.Sprint(base, i)
		s.set(func() { s.hosts[name] = h })
		s.know(name, leads(tell), votes)
	}
	s.gossiped.Wake()
	d.liars = append(d.liars, h)
}

// act has the leader end, liars come and end their streams, and voters elect another leader.
func (d *drama) act() {
	s, r := d.s, d.r
	lies := func() {
		for range r.IntN(3) {
			d.liar()
		}
	}
	lies()
	if d.leader != "" && r.IntN(2) == 0 {
		calm := one(r, 0, time.Second, 2*timing.DirectMost)
		d.note("calm for %v", calm)
		d.serves("a calm", calm, 0)
	}
	if len(d.dead) < len(d.voters)/2 && r.IntN(2) == 0 && d.leader != "" {
		d.note("%s is no more", d.leader)
		h := s.hosts[d.leader]
		s.set(func() { delete(s.hosts, d.leader) })
		d.dead = append(d.dead, d.leader)
		h.crash()
	} else if d.leader != "" {
		d.note("%s leads no more", d.leader)
		s.hosts[d.leader].resign()
	}
	d.leader = ""
	lies()
	for _, name := range d.alive() {
		h := s.hosts[name]
		h.set(func() { h.heard = false })
		h.serve(0)
		if r.IntN(3) > 0 { // else it tells the old leader still
			h.tell("", 0)
		}
	}
	wait := one(r, 0, 50*time.Millisecond, 700*time.Millisecond, 5*time.Second, 40*time.Second, 70*time.Second)
	closes := one(r, 0, 0, 30*time.Millisecond, time.Second)
	d.note("no leader for %v, the liars end their streams every %v", wait, closes)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for closes > 0 {
			select {
			case <-stop:
				return
			case <-time.After(closes):
				for _, h := range d.liars {
					h.crash()
				}
			}
		}
	}()
	time.Sleep(wait)
	next := one(r, d.alive()...)
	d.term += uint64(1 + r.IntN(3))
	d.note("%s leads term %d", next, d.term)
	d.elect(next)
	if r.IntN(2) == 0 {
		s.gossip(next, leads(d.term), votes)
	}
	d.serves("an election", 15*time.Second, 4*time.Second+16*d.far)
	close(stop)
	<-ended
	synctest.Wait()
}

// alive returns the voters that are not dead.
func (d *drama) alive() []string {
	return slices.DeleteFunc(slices.Clone(d.voters), func(v string) bool { return slices.Contains(d.dead, v) })
}

// elect has a voter lead the term, and the others tell of it.
func (d *drama) elect(name string) {
	d.leader = name
	for _, v := range d.alive() {
		if h := d.s.hosts[v]; v != name {
			h.set(func() { h.heard = true })
			h.serve(0)
			h.tell(name, d.term)
		}
	}
	d.s.hosts[name].serve(d.term)
}

// serves fails the test if the member is without its leader for longer than most within a time, or in the end.
func (d *drama) serves(after string, within, most time.Duration) {
	const step = 20 * time.Millisecond
	var without time.Duration
	for range within / step {
		time.Sleep(step)
		if got, _, _ := d.s.k.Leader(); got != d.leader {
			without += step
		}
	}
	if got, _, _ := d.s.k.Leader(); without > most || got != d.leader {
		d.s.t.Errorf("after %s: without %s for %v, at %q in the end", after, d.leader, without, got)
	}
}
