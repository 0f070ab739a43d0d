package founding

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// guarded gives a process a TokenFloor.
func guarded(floor func(ctx context.Context) (uint64, error)) func(*Config) {
	return func(c *Config) { c.TokenFloor = floor }
}

// sees is a TokenFloor of a resource that has seen the token.
func sees(token uint64) func(*Config) {
	return guarded(func(context.Context) (uint64, error) { return token, nil })
}

// logs has a process log to out.
func logs(out *lines) func(*Config) {
	return func(c *Config) { c.Self.Log = slog.New(slog.NewTextHandler(out, nil)) }
}

// lines is a log of several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

const floorWarning = "the token floor is not known"

// While TokenFloor fails on one member of three, nothing is founded: the member says why,
// the others name it without its error, it warns once a minute and asks less and less
// often.
func TestAFounderWithoutItsTokenFloorTakesNoPart(t *testing.T) {
	for _, failing := range abc {
		t.Run(failing, func(t *testing.T) {
			inMoot(t, func(m *moot) {
				var up atomic.Bool
				var calls atomic.Int32
				var log lines
				for _, name := range abc {
					if name != failing {
						m.start(name, nil, sees(1))
						continue
					}
					m.start(name, nil, logs(&log), guarded(func(context.Context) (uint64, error) {
						calls.Add(1)
						if !up.Load() {
							return 0, errors.New("dial postgres://user:secret@db: refused")
						}
						return 1, nil
					}))
				}
				time.Sleep(50 * time.Second)
				for _, p := range m.processes() {
					text := p.Progress()
					own := p.self.Name == failing
					if p.Value() != nil || own != strings.Contains(text, "Recovery.TokenFloor fails: dial postgres") {
						t.Errorf("%s: %+v, %s", p.self.Name, p.Value(), text)
					}
					if p.self.Name == "a" && !own && !strings.Contains(text, failing+" refuses: its Recovery.TokenFloor fails") {
						t.Errorf("%s: %s", p.self.Name, text)
					}
				}
				if n := log.count(floorWarning); n != 1 {
					t.Errorf("%d warnings", n)
				}
				if n := calls.Load(); n < 4 || n > 12 {
					t.Errorf("%d calls", n)
				}
				up.Store(true)
				time.Sleep(timing.FloorAtMost + 15*time.Second)
				m.granting()
				time.Sleep(10 * time.Second)
				if text := m.alive[failing].Progress(); text != "" {
					t.Errorf("still told: %s", text)
				}
			})
		})
	}
}

// A TokenFloor that waits for ever is cut off, told, and ended with the node.
func TestATokenFloorThatBlocksIsCutOff(t *testing.T) {
	inMoot(t, func(m *moot) {
		var log lines
		var calls, ended atomic.Int32
		block := guarded(func(ctx context.Context) (uint64, error) {
			calls.Add(1)
			defer ended.Add(1)
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond) // Run waits for the call
			return 0, context.Cause(ctx)
		})
		m.start("a", nil, logs(&log), block)
		m.start("b", nil)
		m.start("c", nil)
		time.Sleep(20 * time.Second)
		if a := m.alive["a"]; a.Value() != nil || !strings.Contains(a.Progress(), NoFloor+"has not answered") || log.count(floorWarning) != 1 {
			t.Errorf("%+v: %s; %d warnings", a.Value(), a.Progress(), log.count(floorWarning))
		}
		for calls.Load() == ended.Load() {
			time.Sleep(timing.FloorAsk / 5)
		}
		began := time.Now()
		m.kill("a")
		if calls.Load() != ended.Load() || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%d calls, %d ended, %v after the end", calls.Load(), ended.Load(), time.Since(began))
		}
	})
}

// A TokenFloor that does not even end with its ctx stops the founding, and is told.
func TestATokenFloorThatIgnoresItsContextIsTold(t *testing.T) {
	inMoot(t, func(m *moot) {
		var log lines
		release := make(chan struct{})
		for _, name := range abc {
			m.start(name, nil, logs(&log), guarded(func(context.Context) (uint64, error) { <-release; return 7, nil }))
		}
		time.Sleep(40 * time.Second)
		if a := m.alive["a"]; a.Value() != nil || !strings.Contains(a.Progress(), NoFloor+"has not answered") || log.count(floorWarning) == 0 {
			t.Errorf("%+v: %s; %d warnings", a.Value(), a.Progress(), log.count(floorWarning))
		}
		close(release)
		time.Sleep(20 * time.Second)
		m.granting()
	})
}

// An answer counts for some seconds, for all who ask meanwhile, and no longer: the
// resource may have seen higher tokens since.
func TestAnAnswerOfTheTokenFloorAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, calls atomic.Uint64
		f := newFloorAsker(func(context.Context) (uint64, error) { calls.Add(1); return seen.Load(), nil },
			func() uint64 { return 100 }, func(trouble *floorTrouble) { t.Error(trouble) })
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { f.run(ctx) })
		defer running.Wait()
		defer cancel()
		for _, want := range []struct {
			pause  time.Duration
			answer uint64
			calls  uint64
		}{{0, 1, 1}, {timing.FloorFresh - time.Second, 1, 1}, {2 * time.Second, 3, 2}} {
			time.Sleep(want.pause)
			seen.Add(1)
			var asking sync.WaitGroup
			for range 10 {
				asking.Go(func() {
					if token, trouble := f.get(ctx); token != want.answer || trouble != nil {
						t.Errorf("%d, %v; want %d", token, trouble, want.answer)
					}
				})
			}
			asking.Wait()
			if n := calls.Load(); n != want.calls {
				t.Errorf("%d calls, want %d", n, want.calls)
			}
		}
	})
}

// The answer of every founder's TokenFloor counts, with any proposer.
func TestTheFirstTokenIsAboveEveryFoundersTokenFloor(t *testing.T) {
	for _, asked := range abc {
		inMoot(t, func(m *moot) {
			seen := tokenOf(time.Now().Add(20 * time.Hour))
			var log lines
			for _, name := range abc {
				if name == asked {
					m.start(name, nil, sees(seen), logs(&log))
				} else {
					m.start(name, nil, logs(&log))
				}
			}
			time.Sleep(20 * time.Second)
			m.granting()
			if v := m.alive["a"].Value(); v == nil || v.Floor != seen+unseen+1 {
				t.Errorf("%s knows of %d, and the founding is %+v", asked, seen, v)
			}
			if log.count("the first token is ahead of this host's clock") == 0 {
				t.Error("not told that the clock is behind")
			}
		})
	}
}

// A token of next week spends no tokens: the member that was told takes no part, until its
// clock or the resource is set right.
func TestATokenFloorFarAheadIsRefusedAndTold(t *testing.T) {
	inMoot(t, func(m *moot) {
		var seen atomic.Uint64
		seen.Store(tokenOf(time.Now().AddDate(0, 0, 7)))
		var log lines
		for _, name := range abc {
			m.start(name, nil, logs(&log), guarded(func(context.Context) (uint64, error) { return seen.Load(), nil }))
		}
		time.Sleep(30 * time.Second)
		if a := m.alive["a"]; a.Value() != nil || !strings.Contains(a.Progress(), NoFloor+"returns a token too far ahead") || log.count(floorWarning) == 0 {
			t.Errorf("%+v: %s", a.Value(), a.Progress())
		}
		seen.Store(tokenOf(time.Now()))
		time.Sleep(timing.FloorAtMost + 15*time.Second)
		m.granting()
	})
}

// In a first founding too a member refuses a first token that its resource has seen, and a
// first token more than a day ahead of its clock.
func TestNoMemberAcceptsAFirstTokenOutOfBounds(t *testing.T) {
	inMoot(t, func(m *moot) {
		a := m.start("a", nil, sees(tokenOf(time.Now().Add(time.Hour))))
		liar := member.Process{Name: "b", Boot: 99, Addr: "b"}
		for _, tt := range []struct {
			ahead time.Duration
			why   string
		}{
			{0, "the protected resource has seen"},
			{time.Hour, "the protected resource has seen"},
			{2 * time.Hour, ""},
			{25 * time.Hour, "ahead of this member's clock"},
		} {
			v := wire.Founding{Cluster: [16]byte{7}, Voters: []string{"b#1"}, Floor: tokenOf(time.Now().Add(tt.ahead))}
			req := wire.AcceptRequest{Ballot: wire.Ballot{Round: 5, Name: "b", Boot: 99}, Value: v}
			code, body := a.Step(context.Background(), liar, wire.Accept, wire.Marshal(&req))
			var answer wire.AcceptAnswer
			if code != wire.CodeOK {
				if err := wire.Unmarshal(body, &answer); err != nil {
					t.Fatal(err)
				}
			}
			if (code == wire.CodeOK) != (tt.why == "") || !strings.Contains(answer.Refused, tt.why) {
				t.Errorf("%v ahead: %v %q", tt.ahead, code, answer.Refused)
			}
		}
	})
}

// A successor is founded above what the resource has seen too, and waits while the resource
// does not answer: on the word of a list, and on an operator's.
func TestASuccessorAsksForTheTokenFloor(t *testing.T) {
	for _, word := range []string{"complete", "operator"} {
		t.Run(word, func(t *testing.T) {
			inMoot(t, func(m *moot) {
				var down atomic.Bool
				var seen atomic.Uint64
				floor := guarded(func(context.Context) (uint64, error) {
					if down.Load() {
						return 0, errors.New("down")
					}
					return seen.Load(), nil
				})
				var change []func(*Config)
				if word == "complete" {
					change = append(change, complete(abc...))
				}
				c, old := m.dies(append(change, floor)...)
				down.Store(true)
				if word == "complete" {
					m.start("a", nil, append(change, floor)...)
					m.start("b", nil, append(change, floor)...)
					time.Sleep(time.Minute)
				} else if err := c.recovers(30*time.Second, "a", "b"); err == nil || !strings.Contains(err.Error(), NoFloor+"fails: down") {
					t.Errorf("recovered: %v", err)
				}
				if c.Cluster() != old || !strings.Contains(c.Progress()+m.processes()[0].Progress(), NoFloor+"fails") {
					t.Errorf("%v: %s", c.Cluster(), c.Progress())
				}
				down.Store(false)
				seen.Store(tokenOf(time.Now().Add(10 * time.Hour)))
				if word == "operator" {
					time.Sleep(timing.FloorAtMost)
					if err := c.recovers(time.Minute, "a", "b"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if v := c.Value(); v.Cluster == old || v.Floor <= seen.Load() {
					t.Errorf("%+v: %s", v, c.Progress())
				}
			})
		})
	}
}

// The word of a member raises the first token by a day at most; further ahead it is named,
// takes no part, and with named founders stops nobody.
func TestALieAboutTokensIsBounded(t *testing.T) {
	inMoot(t, func(m *moot) {
		three := func(c *Config) { c.InitialSize, c.Founders = 0, abc }
		c := m.start("c", nil, three)
		c.setLies(func(a *wire.PrepareAnswer) { a.Token, a.Refused = mostFloor-2, "" })
		c.stop() // answers, and proposes nothing
		m.start("a", nil, three)
		time.Sleep(20 * time.Second)
		if a := m.alive["a"]; a.Value() != nil || !strings.Contains(a.Progress(), "c refuses: it tells of a token more than a day ahead") {
			t.Errorf("%+v: %s", a.Value(), a.Progress())
		}
		m.start("b", nil, three)
		time.Sleep(20 * time.Second)
		for _, name := range []string{"a", "b"} {
			if v := m.alive[name].Value(); v == nil || v.Floor > tokenOf(time.Now()) {
				t.Errorf("%s: %+v: %s", name, v, m.alive[name].Progress())
			}
		}
	})
}
