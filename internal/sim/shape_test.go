package sim

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"time"
)

// A shape is how the members of a run are configured, drawn from the seed.
type shape struct {
	seed     uint64
	members  int
	thin     int // the last ones never vote
	voters   int // as configured; 0: the default
	ttl      time.Duration
	dir      dirKind
	path     string // of the directories
	complete bool   // Join is complete: a lost majority is succeeded
	secrets  *secrets
	log      uint64  // entries between snapshots; 0: the usual number, so that there are none
	spread   float64 // the clocks' rates lie within 1 ± spread
	rates    []float64
	offsets  []time.Duration
	light    bool // a caller in each process, in place of four
}

type dirKind uint8

const (
	noDir dirKind = iota
	dirFlush
	dirBoot // Sync Boot
)

// founders returns the InitialSize. Members with a Dir found with a majority of all
// voters, so that no partition founds twice.
func (s shape) founders() int {
	able := s.members - s.thin
	if s.dir != noDir {
		return max(3, able/2+1)
	}
	return min(3, able)
}

func (s shape) rate(i int) float64         { return s.rates[i] }
func (s shape) offset(i int) time.Duration { return s.offsets[i] }

func (s shape) String() string {
	kind := [...]string{"memory", "dir", "dir, Sync Boot"}[s.dir]
	if s.complete {
		kind += ", complete"
	}
	if s.secrets != nil {
		kind += ", secrets"
	}
	if s.light {
		kind += ", light"
	}
	return fmt.Sprintf("%d members (%d thin), voters %d, TTL %v, %s, clocks ± %.2f %%", s.members, s.thin, s.voters, s.ttl, kind, 100*s.spread)
}

// drawShape draws the shape of a seed.
func drawShape(seed uint64) shape {
	r := rand.New(rand.NewPCG(seed, 1))
	s := shape{seed: seed, members: 5, thin: 2}
	switch r.IntN(8) {
	case 0:
		s.thin = 0
	case 1:
		s.thin, s.voters = 0, 5
	case 2:
		s.members, s.thin = 3, 0
	case 3:
		s.members, s.thin, s.voters = 7, 0, []int{3, 5, 7}[r.IntN(3)]
	}
	s.ttl = ttls[r.IntN(len(ttls))]
	switch r.IntN(6) {
	case 0:
		s.dir = dirFlush
	case 1:
		if s.dir = dirBoot; r.IntN(2) == 0 {
			s.dir = dirFlush
		}
	case 2:
		s.complete = true
	}
	if r.IntN(12) == 0 { // a handshake costs more than a call, and faults make many
		s.secrets = newSecrets(seed)
	}
	if r.IntN(2) == 0 {
		s.log = 40 + r.Uint64N(160)
	}
	// No clock is faster than another one by more than 1 % and 100 ms / TTL.
	bound := 0.01 + 0.1/s.ttl.Seconds()
	s.spread = 0.45 * min(bound, 0.3)
	s.draw(r)
	s.light = rand.New(rand.NewPCG(seed, 4)).IntN(heavyOneIn) > 0
	return s
}

// heavyOneIn is the share of towns with many callers, by their number. Faults bring the
// states of the protocol about, and calls cost most of the time of a run.
const heavyOneIn = 10

// ttls has the TTLs by their weights: a phase lasts about as long as a TTL, so a short one
// makes many faults in little time, and a long one much time.
var ttls = []time.Duration{
	time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 5 * time.Second,
	10 * time.Second, 10 * time.Second, 10 * time.Second,
}

// draw draws the clocks.
func (s *shape) draw(r *rand.Rand) {
	s.rates, s.offsets = nil, nil
	for range s.members {
		s.rates = append(s.rates, 1-s.spread+2*s.spread*r.Float64())
		s.offsets = append(s.offsets, time.Duration(r.Int64N(int64(2*time.Hour)))-time.Hour)
	}
}

// secrets are those of the cluster, the newest first.
type secrets struct {
	seed  uint64
	known [][]byte
	next  int
}

func newSecrets(seed uint64) *secrets {
	s := &secrets{seed: seed}
	s.known = [][]byte{s.make()}
	return s
}

func (s *secrets) make() []byte {
	s.next++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", s.seed, s.next))
	return sum[:]
}

func (s shape) currentSecrets() [][]byte {
	if s.secrets == nil {
		return nil
	}
	return s.secrets.known
}
