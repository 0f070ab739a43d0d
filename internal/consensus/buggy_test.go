package consensus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A mangler damages a part of the frames of a member.
type mangler struct {
	mu    sync.Mutex
	rand  *rand.Rand
	lies  bool // checksums are made to fit
	done  int
	every int
}

// mangle returns the bytes that leave the member instead of a frame, or of a piece of
// a stream.
func (m *mangler) mangle(sends []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := bytes.Clone(sends)
	if m.rand.IntN(m.every) > 0 || len(b) < 11 {
		return b
	}
	m.done++
	from := 8 // behind the length and the checksum
	switch m.rand.IntN(8) {
	case 0:
		from = 0
	case 1:
		b = b[:1+m.rand.IntN(len(b)-1)]
	case 2:
		at := from + m.rand.IntN(len(b)-from)
		b = slices.Concat(b[:at], b[at+1:], b[at:at+1])
	}
	for range 1 + m.rand.IntN(4) {
		if len(b) <= from {
			break
		}
		at := from + m.rand.IntN(len(b)-from)
		switch m.rand.IntN(3) {
		case 0:
			b[at] ^= 1 << m.rand.IntN(8)
		case 1:
			b[at] = []byte{0, 1, 0x7f, 0x80, 0xff}[m.rand.IntN(5)]
		case 2: // a large number
			copy(b[at:], "\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
		}
	}
	if m.lies && len(b) > 8 {
		binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b[:min(len(b), len(sends))]
}

// A member with a fault sends damaged frames on its own streams: requests, answers,
// entries as a leader, votes. No process ends, no acknowledged entry is lost, and the
// tables of the others stay equal, so no key is granted twice. Frames whose checksums
// are made to fit are lies; for a voter that lies only the first is promised.
//
// WARDMOTE_FULL plays many more rounds; WARDMOTE_BUGGY is a duration to play for.
func TestAVoterWithDamagedFramesEndsNobodyAndGrantsNothingTwice(t *testing.T) {
	rounds, limit := 4, time.Duration(0)
	if os.Getenv("WARDMOTE_FULL") != "" {
		rounds = 200
	}
	if text := os.Getenv("WARDMOTE_BUGGY"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	mangled, began, first := 0, time.Now(), uint64(0)
	if limit > 0 {
		first = uint64(began.UnixNano()) // another run, other damage
	}
	for seed := first; seed < first+uint64(rounds) || time.Since(began) < limit; seed++ {
		m := &mangler{rand: rand.New(rand.NewPCG(seed, 9)), lies: seed%2 == 1, every: 1 + int(seed%5)*3}
		buggyRound(t, m, seed)
		mangled += m.done
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d damaged frames", mangled)
}

func buggyRound(t *testing.T, m *mangler, seed uint64) {
	onBench(t, func(b *bench) {
		b.found(func(c *Config) {
			c.NewTable = func() FSM { return &lockTable{state: machine.New()} }
			c.LastToken = func(FSM) uint64 { return 0 }
		})
		leader := b.leader()
		r := leader.raft()
		propose(t, r, machine.LeaderStart{Term: r.Term()})
		propose(t, r, machine.Found{Cluster: founding.Cluster, Floor: 1, TTL: 60_000})
		propose(t, r, machine.Lift{Term: r.Term()})
		propose(t, r, machine.Open{Session: session(1), Client: "c", Node: "n", TTL: 60_000})
		b.mu.Lock()
		b.mangle, b.mangled = m.mangle, fmt.Sprint("n", 1+seed%3)
		b.mu.Unlock()

		// Each key is acquired once, as a client does: anew until a leader answers.
		tokens := make(map[machine.Token]int)
		seq := 0
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
			for _, c := range b.all {
				r := c.seat.Current()
				if r == nil {
					continue // it retired, which is its right
				}
				if _, leads := r.Leadership(); !leads {
					continue
				}
				cmd := machine.EncodeCommands([]machine.Command{machine.Acquire{Session: session(1), Seq: uint64(seq + 1), Key: fmt.Sprint("k", seq)}})
				answer := make(chan any, 1)
				code := wire.CodeUnknown
				go func() { // ends with raft at the latest
					out, c := r.Commit(cmd)
					code = c
					answer <- out
				}()
				var out any
				select {
				case out = <-answer:
				case <-time.After(time.Minute):
					// A leader whose entries are lies that nobody takes leads on: each answer
					// to a heartbeat keeps it the leader.
					if !m.lies {
						t.Error("a leader answers nothing for a minute")
					}
					return
				}
				outcomes, ok := out.([]machine.Outcome)
				if code != wire.CodeOK || !ok || len(outcomes) != 1 || outcomes[0].Code != machine.Granted {
					continue
				}
				if other, twice := tokens[outcomes[0].Token]; twice && other != seq && !m.lies {
					t.Errorf("keys %d and %d have the token %d", other, seq, outcomes[0].Token)
				}
				tokens[outcomes[0].Token] = seq
				seq++
			}
		}
		b.mu.Lock()
		b.mangled = ""
		b.mu.Unlock()
		if m.lies {
			return // everybody lives
		}
		b.eventually("the tables agree", func() bool {
			last := b.leader().raft()
			if last.Barrier() != nil {
				return false
			}
			want, counts, _ := last.Table().(*lockTable).look()
			for _, c := range b.all {
				if r := c.seat.Current(); r != nil {
					if got, _, _ := r.Table().(*lockTable).look(); got != want {
						return false
					}
				}
			}
			if counts.Grants < seq {
				t.Errorf("%d grants were acknowledged, the tables have %d", seq, counts.Grants)
			}
			return true
		})
		if seq < 20 {
			t.Errorf("only %d grants in 20 s", seq)
		}
	})
}
