package term_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

const (
	ttl  = 3 * time.Second
	tick = timing.KeeperTick
)

// key is the key of the session sid(n).
func key(n byte) machine.SessionKey { return machine.SessionKey{n} }

func sid(n byte) machine.SessionID { return key(n).ID() }

func keys(ns ...byte) (out []machine.SessionKey) {
	for _, n := range ns {
		out = append(out, key(n))
	}
	return out
}

// number returns n of sid(n), or 0.
func number(id machine.SessionID) byte {
	for n := range byte(255) {
		if sid(n) == id {
			return n
		}
	}
	return 0
}

// A stage is a cluster in a bubble, with the shorthands of this package's tests.
type stage struct {
	*termtest.Cluster
	t  *testing.T
	on *term.Term
	by *term.Subscriber // of on

	bound  []byte         // binding of the streams dialled from now on
	budget *budget.Budget // of these streams; nil: none
}

// own joins tm as the process of every session in these tests.
func own(tm *term.Term) *term.Subscriber {
	s := &term.Subscriber{Node: "n", Event: func(machine.Event) {}}
	all := make([]machine.SessionKey, 100)
	for n := range all {
		all[n] = key(byte(n))
	}
	tm.Join(s)
	tm.Attach(s, nil, all)
	return s
}

// owner returns the subscriber of every session in these tests.
func (s *stage) owner() *term.Subscriber {
	if tm := s.Term(); s.on != tm {
		s.on, s.by = tm, own(tm)
	}
	return s.by
}

// onStage runs f on a founded and granting cluster, with a leader in term 1.
func onStage(t *testing.T, f func(s *stage)) { onStageWith(t, termtest.Config{}, f) }

func onStageWith(t *testing.T, cfg termtest.Config, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.TTL = ttl
		f(&stage{Cluster: termtest.New(t, cfg), t: t})
	})
}

func opening(id byte) machine.Open {
	return machine.Open{Session: sid(id), Client: "c", Node: "n", TTL: uint64(ttl / time.Millisecond)}
}

func (s *stage) open(id byte) {
	s.t.Helper()
	s.Must(opening(id))
}

func (s *stage) acquire(id byte, seq uint64, on string) machine.Token {
	s.t.Helper()
	return s.Must(machine.Acquire{Session: sid(id), Seq: seq, Key: on}).Token
}

func (s *stage) alive(id byte) bool { return s.Alive(sid(id)) }

func (s *stage) held(key string) bool { return s.Status(key).Held > 0 }

// proposed reports whether a command is in the log.
func (s *stage) proposed(want machine.Command) bool {
	return s.Sent(func(c machine.Command) bool {
		switch c.(type) {
		case machine.Silence, machine.Hear, machine.Expire:
			return c == want
		}
		return false
	}) > 0
}

// beat sends a beat to the leader.
func (s *stage) beat(id byte) <-chan wire.Code {
	ch := make(chan wire.Code, 1)
	s.Term().Beat(s.owner(), sid(id), func(c wire.Code) { ch <- c })
	return ch
}

// verdict returns the answer if there is an answer by now, or 0.
func verdict(ch <-chan wire.Code) wire.Code {
	synctest.Wait()
	select {
	case c := <-ch:
		return c
	default:
		return 0
	}
}

// nextVerdict is verdict for a beat soon after another: beats wait for each other.
func nextVerdict(ch <-chan wire.Code) wire.Code {
	time.Sleep(timing.BeatsTogether)
	return verdict(ch)
}

// untilSilent waits until an unheard session is marked.
func untilSilent() { time.Sleep(ttl*2/3 + 2*tick) }

// scanning is a scan under way.
type scanning struct {
	answers chan replica.Scanned
	codes   chan wire.Code
	cancel  func()
}

func (s *stage) scan(q replica.Scan) scanning {
	r := scanning{answers: make(chan replica.Scanned, 1), codes: make(chan wire.Code, 1)}
	r.cancel = s.Term().Scan(q, func(a replica.Scanned, c wire.Code) { r.answers <- a; r.codes <- c })
	return r
}

// answer returns the answer if there is an answer by now, and false if the scan
// waits or has failed.
func (r scanning) answer() (replica.Scanned, bool) {
	synctest.Wait()
	select {
	case a := <-r.answers:
		return a, <-r.codes == wire.CodeOK
	default:
		return replica.Scanned{}, false
	}
}

// read reads now.
func (s *stage) read(q replica.Query) replica.Answer {
	s.t.Helper()
	ch := make(chan replica.Answer, 1)
	s.Term().Read(q, func(a replica.Answer, c wire.Code) {
		if c != wire.CodeOK {
			s.t.Errorf("read: code %d", c)
		}
		ch <- a
	})
	return <-ch
}

// keysOf lists the keys of an answer, the held ones with a star.
func keysOf(a replica.Scanned) string {
	var out []string
	for _, st := range a.Keys {
		if st.Held > 0 {
			st.Key += "*"
		}
		out = append(out, st.Key)
	}
	return strings.Join(out, " ")
}
