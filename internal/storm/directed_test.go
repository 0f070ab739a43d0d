//go:build linux

package storm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
)

// Random faults seldom meet in the order of an execution that a wrong rule allows. Each of
// these schedules is made for a rule, and internal/mutants takes some of the rules out, to
// see the schedule fail.

// stage is a town for a directed schedule. No work runs: the driver makes every call.
type stage struct {
	t      *testing.T
	w      *town
	leader *house
	voters []*house // that do not lead
	thin   []*house // that do not vote
	broken []string
	asking sync.WaitGroup // ends with the town at the latest
}

const directedTTL = 4 * time.Second

// direct runs a schedule in a town of five members with three voters, and judges the
// history. A schedule adds its own findings to broken.
func direct(t *testing.T, schedule func(s *stage)) {
	t.Parallel()
	if !testrounds.Full() && os.Getenv(stormEnv) == "" {
		t.Skip("takes half a minute: make full")
	}
	base := t.TempDir()
	k := kind{Members: 5, TTL: directedTTL}
	w, err := newTown(base, k, uint64(time.Now().UnixNano()%1e9), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	s, closed := &stage{t: t, w: w}, false
	t.Cleanup(func() {
		if !closed {
			w.close()
		}
		s.asking.Wait()
	})
	if w.net == nil {
		t.Skip("no network namespaces: ", w.noNet)
	}
	for i := range k.Members {
		if _, err := w.start(i); err != nil {
			t.Fatal(err)
		}
	}
	s.settle()
	schedule(s)
	closed = true
	w.close()
	h, err := readAll(base)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	for _, v := range judge(h, &r) {
		t.Error(v)
	}
	for _, text := range s.broken {
		t.Error(text)
	}
	if fenced, forgets := w.store.sum(""); len(forgets) > 0 {
		t.Errorf("the fenced copies lost %d updates", fenced.Lost)
	}
	if r.Grants < 2 {
		t.Errorf("only %d grants", r.Grants)
	}
	t.Logf("%d grants, %d lost; stopped %+v, running %+v", r.Grants, r.Lost, r.Stopped, r.Running)
}

func (s *stage) must(r report, err error) report {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// settle waits until three members vote and all know the leader, and takes their parts.
func (s *stage) settle() {
	s.t.Helper()
	if err := s.w.serves(); err != nil {
		s.t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		r, err := s.w.house(0).ask("voters", "", 5*time.Second)
		names := strings.Fields(r.Detail)
		s.leader, s.voters, s.thin = nil, nil, nil
		for i := range s.w.kind.Members {
			h := s.w.house(i)
			switch {
			case name(i) == r.Key:
				s.leader = h
			case slices.Contains(names, name(i)):
				s.voters = append(s.voters, h)
			default:
				s.thin = append(s.thin, h)
			}
		}
		if err == nil && s.leader != nil && len(s.voters) == 2 {
			return
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("the town does not settle: %+v, %v", r, err)
		}
	}
}

// hold has a member acquire a key and ask Err all the time.
func (s *stage) hold(h *house, key string) {
	s.t.Helper()
	s.must(h.ask("acquire", key, 10*directedTTL))
}

// leaderAfter waits for news of a term after term.
func (s *stage) leaderAfter(term uint64) {
	s.t.Helper()
	s.await("a next leader", func() bool { return s.term() > term })
}

// await looks until the town is in a state that members tell of by themselves.
func (s *stage) await(what string, is func() bool) {
	s.t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*directedTTL {
			s.t.Fatal("in vain for ", what)
		}
	}
}

func (s *stage) term() uint64 {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.term
}

// cut cuts some members off from the others, until heal is called.
func (s *stage) cut(hs ...*house) (heal func()) {
	s.t.Helper()
	var members []int
	for _, h := range hs {
		members = append(members, h.i)
	}
	ways := s.w.around(true, true, members...)
	s.ways(ways, s.w.net.Cut)
	return func() { s.ways(ways, s.w.net.Heal) }
}

func (s *stage) ways(ways [][2]int, f func(from, to int) error) {
	s.t.Helper()
	for _, way := range ways {
		if err := f(way[0], way[1]); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A leader confirms beats only when a majority says that no other leader was elected. The
// leader and a holder stand still, cut off from the rest, and wake when the rest has elected and
// the next leader knows of a waiter: the old leader must not prolong the holder's trust. A write of
// the old leader hangs meanwhile, and raft with it, which would look at its lease at once.
func TestAnOldLeaderThatWakesConfirmsNoBeat(t *testing.T) {
	const rounds, tries = 3, 12
	direct(t, func(s *stage) {
		made := 0
		for try := range tries {
			if s.wakeOldLeader(try) {
				made++
			}
			if made == rounds {
				return
			}
		}
		s.broken = append(s.broken, fmt.Sprintf("in %d of %d tries only was the next leader elected in time", made, tries))
	})
}

// wakeOldLeader is a round of TestAnOldLeaderThatWakesConfirmsNoBeat. A round is made if the holder wakes
// with trust left, and the old leader before its term ends because of the write.
func (s *stage) wakeOldLeader(try int) (made bool) {
	s.t.Helper()
	key, term, old, holder, next := fmt.Sprint("k", try), s.term(), s.leader, s.thin[0], s.thin[1]
	s.hold(holder, key)
	hung := time.Now()
	s.must(old.ask("disk", "hang", time.Second))
	stuck := old.begin(command{Do: "acquire", Key: fmt.Sprint("stuck", try), Wait: directedTTL / 2})
	s.must(holder.ask("renew", key, 50*time.Millisecond)) // a whole trust from now on
	heal := s.cut(old, holder)
	old.stop()
	holder.stop()
	granted := next.begin(command{Do: "acquire", Key: key, Wait: 10 * directedTTL})
	s.leaderAfter(term)
	s.await(fmt.Sprint("a place in the queue for ", key), func() bool { return next.waits(key) })
	holder.cont()
	old.cont()
	if left := timing.StoreStalled - time.Since(hung); left > 500*time.Millisecond {
		r, err := holder.ask("renew", key, left)
		made = err == nil
		s.t.Logf("round %d: the holder woke %v before the old term's end, %d beats were confirmed, %v", try, left.Round(time.Millisecond), r.Token, err)
	}
	s.must(old.ask("disk", "heal", time.Second))
	s.must(granted())
	_, _ = holder.ask("valid", key, time.Second) // a word after the grant, for the judge
	_, _ = stuck()                               // in vain
	heal()
	s.must(next.ask("release", key, directedTTL))
	s.settle()
	return made
}

// A new leader gives every session a whole TTL. The holder is cut off from all but the
// leader, and the leader is killed: the next one cannot know when the last beat was
// confirmed.
func TestANextLeaderWaitsForAHolderThatItCannotHear(t *testing.T) {
	direct(t, func(s *stage) {
		for round := range 2 {
			key := fmt.Sprint("k", round)
			holder, leader := s.thin[0], s.leader
			s.hold(holder, key)
			var ways [][2]int
			for _, way := range s.w.around(true, true, holder.i) {
				if way[0] != leader.i && way[1] != leader.i {
					ways = append(ways, way)
				}
			}
			s.ways(ways, s.w.net.Cut)
			next := s.thin[1].begin(command{Do: "acquire", Key: key, Wait: 10 * directedTTL})
			time.Sleep(time.Duration(300+500*round) * time.Millisecond) // another part of the beats' period
			leader.kill()
			s.must(next())
			time.Sleep(directedTTL / 2)
			s.ways(ways, s.w.net.Heal)
			s.must(s.thin[1].ask("release", key, directedTTL))
			if _, err := s.w.start(leader.i); err != nil {
				s.t.Fatal(err)
			}
			s.settle()
		}
	})
}

// A holder, cut off alone, ends its lock before the next grant.
func TestAHolderThatIsCutOffEndsFirst(t *testing.T) {
	direct(t, func(s *stage) {
		holder := s.thin[0]
		s.hold(holder, "k")
		heal := s.cut(holder)
		s.hold(s.thin[1], "k")
		time.Sleep(directedTTL)
		heal()
	})
}

// A holder stands still across the end of its trust, with a write to come. The write is
// refused, and the end of the lock is told as soon as the process runs.
func TestAHolderThatStandsStillWritesTooLate(t *testing.T) {
	direct(t, func(s *stage) {
		for round := range 3 {
			key := fmt.Sprint("k", round)
			holder := []*house{s.thin[0], s.voters[0], s.leader}[round]
			s.hold(holder, key)
			holder.stop()
			s.hold(s.thin[1], key)
			s.must(s.thin[1].ask("write", key, time.Second))
			late := holder.begin(command{Do: "write", Key: key, Wait: 5 * time.Second})
			holder.cont()
			if _, err := late(); err == nil {
				s.broken = append(s.broken, "the fence took the write of a holder that had stood still")
			}
			s.must(s.thin[1].ask("release", key, 2*directedTTL))
			s.settle()
		}
	})
}

// The leader hears a request, commits it, and cannot answer; then the leader is killed. The
// request is answered by the next leader, once, and nobody else is granted the key before
// the release.
func TestALeaderThatDiesBetweenCommitAndAnswerGrantsOnce(t *testing.T) {
	direct(t, func(s *stage) {
		for round := range 3 {
			key := fmt.Sprint("k", round)
			asker, leader := s.thin[0], s.leader
			s.ways([][2]int{{leader.i, asker.i}}, s.w.net.Cut)
			granted := make(chan *house, 2) // nil: not granted, and why is logged
			for _, h := range []*house{asker, s.thin[1]} {
				answer := h.begin(command{Do: "acquire", Key: key, Wait: 10 * directedTTL})
				s.asking.Go(func() {
					if _, err := answer(); err != nil {
						s.w.logf("%s: %v", h.process, err)
						h = nil
					}
					granted <- h
				})
			}
			time.Sleep(time.Duration(5+20*round) * time.Millisecond)
			leader.kill()
			s.ways([][2]int{{leader.i, asker.i}}, s.w.net.Heal)
			for range 2 { // who is first is up to the leaders
				h := <-granted
				if h == nil {
					s.t.Fatal("a request was not granted")
				}
				s.must(h.ask("release", key, 2*directedTTL))
			}
			if _, err := s.w.start(leader.i); err != nil {
				s.t.Fatal(err)
			}
			s.settle()
		}
	})
}

// Leaders come and go while a holder is dead: its key is free all the same, and no
// living holder is given up.
func TestLeadersThatFlapKeepNoDeadHolderAlive(t *testing.T) {
	direct(t, func(s *stage) {
		s.hold(s.thin[0], "dead")
		s.hold(s.voters[0], "alive")
		dead := s.thin[0]
		dead.kill()
		next := s.thin[1].begin(command{Do: "acquire", Key: "dead", Wait: 10 * directedTTL})
		for range 4 {
			term := s.term()
			leader := s.w.house(s.w.leader(newRand(1, 1)))
			leader.stop()
			s.leaderAfter(term)
			leader.cont()
		}
		s.must(next())
		if _, err := s.w.start(dead.i); err != nil {
			s.t.Fatal(err)
		}
	})
}

// Everybody stands still for longer than a TTL, and wakes in turn.
func TestATownThatStandsStillWakes(t *testing.T) {
	direct(t, func(s *stage) {
		s.hold(s.thin[0], "k")
		s.hold(s.leader, "l")
		next := s.thin[1].begin(command{Do: "acquire", Key: "k", Wait: 10 * directedTTL})
		also := s.voters[0].begin(command{Do: "acquire", Key: "l", Wait: 10 * directedTTL})
		order := []*house{s.voters[0], s.thin[1], s.voters[1], s.thin[0], s.leader}
		for _, h := range order {
			h.stop()
		}
		time.Sleep(directedTTL + directedTTL/2)
		for _, h := range order {
			h.cont()
			time.Sleep(directedTTL / 4)
		}
		_, _ = s.thin[0].ask("release", "k", 2*directedTTL)
		_, _ = s.leader.ask("release", "l", 2*directedTTL)
		s.must(next())
		s.must(also())
		s.w.rec.Mark(history.Heal, "", "")
	})
}
