package term_test

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file tries to steal a held lock over an authenticated stream of another member.
// The thief knows everything that answers show: session, token, seq, key, name, boot.

const held = "k"

// A heist is a victim that holds a key, and thieves with streams of their own.
type heist struct {
	*stage
	refused *refused.Log
	victim  *peer
	id      machine.SessionID
	token   machine.Token
}

// victimKey is the key of the victim's session, and victimDir that of its directory.
var (
	victimKey = machine.SessionKey{200, 1, 2, 3}
	victimDir = wire.NewDirSeed().Key()
)

func onHeist(t *testing.T, f func(h *heist)) {
	t.Helper()
	log := refusals()
	onStageWith(t, termtest.Config{Refused: log}, func(s *stage) {
		h := &heist{stage: s, refused: log, id: victimKey.ID()}
		h.victim = h.enter("n1", 5)
		h.show(h.victim, victimKey)
		h.must(h.victim, machine.Open{Session: h.id, Client: "v", Node: "n1", Boot: 5, Dir: victimDir.ID(), TTL: uint64(ttl / time.Millisecond)})
		h.token = h.must(h.victim, machine.Acquire{Session: h.id, Seq: 1, Key: held}).Token
		h.must(h.victim, machine.Acquire{Session: h.id, Seq: 2, Key: "other", Spec: machine.Spec{Mode: machine.Shared}})
		f(h)
	})
}

// enter attaches a member without a session.
func (h *heist) enter(node string, boot uint64) *peer {
	h.t.Helper()
	p := h.dialAs(node, boot, func() *term.Term { return h.Term() })
	if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{})); f.Code != wire.CodeOK {
		h.t.Fatalf("attach: %v", f.Code)
	}
	return p
}

func (h *heist) show(p *peer, fresh ...machine.SessionKey) {
	h.t.Helper()
	if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: fresh})); f.Code != wire.CodeOK {
		h.t.Fatalf("attach: %v", f.Code)
	}
}

func (p *peer) propose(c machine.Command) (machine.Outcome, wire.Code) {
	p.t.Helper()
	f := p.ask(wire.Propose, machine.AppendCommand(nil, c))
	if f.Code != wire.CodeOK {
		return machine.Outcome{}, f.Code
	}
	o, err := machine.DecodeOutcome(f.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return o, f.Code
}

func (h *heist) must(p *peer, c machine.Command) machine.Outcome {
	h.t.Helper()
	o, code := p.propose(c)
	if code != wire.CodeOK || o.Code != machine.OK && o.Code != machine.Granted {
		h.t.Fatalf("%#v: %+v, %v", c, o, code)
	}
	return o
}

// scene is everything that a thief could change.
type scene struct {
	held, other machine.Status
	session     machine.SessionStatus
	sessions    int
	applied     int
}

func (h *heist) scene() (sc scene) {
	synctest.Wait()
	h.View(func(m *machine.State) {
		sc.held, sc.other = m.Status(held, 10), m.Status("other", 10)
		sc.session, _ = m.Session(h.id)
		sc.sessions = m.Counts().Sessions
	})
	sc.applied = len(h.Applied())
	return sc
}

// try runs an attempt and checks that nothing has changed, that the thief was told
// nothing, and whether the attempt was counted.
func (h *heist) try(name string, thief *peer, counted bool, attempt func()) {
	h.t.Helper()
	before, refusals := h.scene(), h.refused.Counts()[refused.Session]
	attempt()
	if after := h.scene(); !reflect.DeepEqual(before, after) {
		h.t.Errorf("%s: changed\n%+v\nto\n%+v", name, before, after)
	}
	if n := h.refused.Counts()[refused.Session] - refusals; (n > 0) != counted {
		h.t.Errorf("%s: %d refusals were counted", name, n)
	}
	for len(thief.events) > 0 {
		if e := <-thief.events; e.Session == h.id {
			h.t.Errorf("%s: the thief was told %+v", name, e)
		}
	}
}

// stolen are the commands that act for the victim.
func (h *heist) stolen() map[string]machine.Command {
	return map[string]machine.Command{
		"release":   machine.Release{Session: h.id, Token: h.token},
		"hand over": machine.Release{Session: h.id, Token: h.token, To: "c"},
		"withdraw":  machine.Withdraw{Session: h.id, Seq: 1},
		"close":     machine.Close{Session: h.id},
		"acquire":   machine.Acquire{Session: h.id, Seq: 9, Key: "free"},
		"see":       machine.Acquire{Session: h.id, Seq: 9, Key: "free", Seen: []uint64{1, 2, 3}},
		"upgrade":   machine.Upgrade{Session: h.id, Seq: 9, Token: h.token + 1},
		"downgrade": machine.Downgrade{Session: h.id, Token: h.token},
		"set value": machine.SetValue{Session: h.id, Token: h.token, Rev: 1, Value: []byte("v")},
		"ask":       machine.Ask{Session: h.id, Key: held},
		"break":     machine.Break{Session: h.id, Key: held, Token: h.token},
		"enlist":    machine.Enlist{Session: h.id, Seq: 9, Group: "g", Shards: 8},
		"delist":    machine.Delist{Session: h.id, Seq: 3},
		"decline":   machine.Decline{Session: h.id, Seq: 3, Shard: 1, Version: 1},
		"resize":    machine.Resize{Session: h.id, Seq: 9, Group: "g", From: 8, To: 9},
		"capacity":  machine.SetCapacity{Session: h.id, Seq: 9, Key: held, Of: 9},
		"extend":    machine.Extend{Session: h.id, Token: h.token, Last: h.token, Block: 8},
		"end":       machine.EndSession{Session: h.id, Ref: h.id.Ref()},
		"open":      machine.Open{Session: h.id, Client: "v", Node: "n1", Boot: 5, TTL: 3000},
		"reopen":    machine.Open{Session: h.id, Client: "t", Node: "n2", Boot: 7, TTL: 3000},
	}
}

// A stream that knows the ID, and every number, of another member's session changes
// nothing: neither as another member, nor in the victim's name and boot, nor with the
// key but as another process.
func TestAHeldLockIsNotStolen(t *testing.T) {
	for _, thief := range []struct {
		name string
		node string
		boot uint64
		key  bool
	}{
		{"another member", "n2", 7, false},
		{"the victim's name and boot without the key", "n1", 5, false},
		{"a later process of the name with the key", "n1", 6, true},
		{"another member with the key", "n2", 7, true},
	} {
		t.Run(strings.ReplaceAll(thief.name, " ", "-"), func(t *testing.T) {
			onHeist(t, func(h *heist) {
				t := h.t
				p := h.enter(thief.node, thief.boot)
				if thief.key {
					h.try("attach", p, true, func() { h.show(p, victimKey) })
					h.try("attach as opened", p, true, func() {
						p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: []machine.SessionKey{victimKey}}))
					})
				}
				for name, c := range h.stolen() {
					h.try(name, p, true, func() {
						if o, code := p.propose(c); code != wire.CodeStranger {
							t.Errorf("%s: %+v, %v", name, o, code)
						}
					})
				}
				h.try("beat", p, true, func() {
					if f := p.ask(wire.Beat, h.id[:]); f.Code != wire.CodeStranger {
						t.Errorf("beat: %v", f.Code)
					}
				})
				// The key of another process's session is not kept, so the thief has nothing to detach.
				h.try("detach", p, true, func() { _ = p.Notify(wire.Detach, h.id[:]) })
				h.must(h.victim, machine.Ask{Session: h.id, Key: held})
				if e := <-h.victim.events; e.Kind != machine.EventAsked {
					t.Errorf("the victim is told %+v", e)
				}
				if len(p.events) > 0 {
					t.Errorf("the thief is told %+v", <-p.events)
				}
			})
		})
	}
}

// Keys that are guessed, or made of the ID, are keys of other sessions.
func TestAWrongKeyOpensNoSession(t *testing.T) {
	onHeist(t, func(h *heist) {
		p := h.enter("n1", 5)
		forged := victimKey
		forged[31]++
		var made machine.SessionKey
		copy(made[:], h.id[:])
		h.try("wrong keys", p, false, func() {
			p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: []machine.SessionKey{forged, made, {}}, New: []machine.SessionKey{forged, made}}))
		})
		h.try("release", p, true, func() { p.propose(machine.Release{Session: h.id, Token: h.token}) })
		// A session of the forged key is the thief's own.
		h.must(p, machine.Open{Session: forged.ID(), Client: "t", Node: "n1", Boot: 5, TTL: 3000})
		h.must(p, machine.Close{Session: forged.ID()})
	})
}

// Nobody opens a session in another member's name: a holder's name is proved.
func TestNobodyOpensASessionInAnothersName(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		h.show(p, key(1))
		for name, c := range map[string]machine.Open{
			"another member":           {Session: sid(1), Client: "t", Node: "n1", Boot: 5, TTL: 3000},
			"another process":          {Session: sid(1), Client: "t", Node: "n2", Boot: 6, TTL: 3000},
			"a session without a key":  {Session: sid(2), Client: "t", Node: "n2", Boot: 7, TTL: 3000},
			"the session without name": {Client: "t", Node: "n2", Boot: 7, TTL: 3000},
		} {
			h.try(name, p, true, func() {
				if o, code := p.propose(c); code != wire.CodeStranger {
					t.Errorf("%s: %+v, %v", name, o, code)
				}
			})
		}
		mine := machine.Open{Session: sid(1), Client: "t", Node: "n2", Boot: 7, TTL: 3000}
		h.must(p, mine)
		h.must(p, mine) // sent again after a lost answer
	})
}

// A thief's beats keep no session alive.
func TestABeatOfAnotherProcessCountsForNothing(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		h.show(p, victimKey)
		for range 2*int(ttl/time.Second) + 2 {
			time.Sleep(time.Second)
			p.ask(wire.Beat, h.id[:])
		}
		if h.Alive(h.id) {
			t.Error("the session outlived its TTL")
		}
		if f := p.ask(wire.Beat, h.id[:]); f.Code != wire.CodeNoSession {
			t.Errorf("a beat of an ended session: %v", f.Code)
		}
	})
}

// A waiter's grant is told to the waiter's own process alone.
func TestAGrantIsToldToNobodyElse(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		waiter, thief, twin := h.enter("n3", 9), h.enter("n2", 7), h.enter("n3", 9)
		h.show(waiter, key(1))
		h.must(waiter, machine.Open{Session: sid(1), Client: "w", Node: "n3", Boot: 9, TTL: 3000})
		if o, _ := waiter.propose(machine.Acquire{Session: sid(1), Seq: 1, Key: held}); o.Code != machine.Queued {
			t.Fatalf("%+v", o)
		}
		for _, p := range []*peer{thief, twin} {
			p.ask(wire.Beat, waiterID[:])
			p.propose(machine.Withdraw{Session: sid(1), Seq: 9})
		}
		h.must(h.victim, machine.Release{Session: h.id, Token: h.token})
		synctest.Wait()
		if len(thief.events)+len(twin.events) > 0 || len(waiter.events) != 1 {
			t.Errorf("told: thief %d, twin %d, waiter %d", len(thief.events), len(twin.events), len(waiter.events))
		}
		// The waiter's stream is lost: the routes go to nobody that has not shown the key.
		waiter.Close()
		<-waiter.served
		synctest.Wait()
		if n := h.Term().Routed(); n != 1 || len(twin.events) > 0 {
			t.Errorf("%d sessions are routed, the twin was told %d events", n, len(twin.events))
		}
	})
}

var waiterID = sid(1)

// The victim's own frames, sent again by another member, do nothing.
func TestFramesOfTheVictimSentAgainDoNothing(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		h.must(h.victim, machine.Acquire{Session: h.id, Seq: 3, Key: "third"})
		for _, c := range h.Applied() {
			h.try("replay", p, true, func() { p.propose(c) })
		}
		// On a stream of its own the victim's late copies are harmless, as ever.
		before := h.scene()
		h.must(h.victim, machine.Open{Session: h.id, Client: "v", Node: "n1", Boot: 5, Dir: victimDir.ID(), TTL: uint64(ttl / time.Millisecond)})
		h.must(h.victim, machine.Acquire{Session: h.id, Seq: 1, Key: held})
		after := h.scene()
		before.applied = after.applied
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%+v became %+v", before, after)
		}
	})
}

// Every type of command is either one that clients may propose, or is refused from
// streams. A new command must be entered here.
func TestOnlyLeadersProposeLeadersCommands(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		number := h.TermNumber()
		leaders := []machine.Command{
			machine.Found{Cluster: machine.ClusterID{9}, Floor: 1, TTL: 3000},
			machine.LeaderStart{Term: number + 1},
			machine.Raise{Term: number, Format: machine.MaxFormat},
			machine.Lift{Term: number},
			machine.Bound{Term: number, TTL: 1000},
			machine.Silence{Session: h.id, Term: number},
			machine.Hear{Session: h.id, Term: number},
			machine.Expire{Session: h.id, Term: number},
			machine.EndDelay{Token: h.token, Term: number},
			machine.EndSlice{Session: h.id},
			machine.AdmitSlice{},
			machine.Assign{Term: number, Group: "g", Version: 1, Moves: []machine.Move{{Shard: 1, Caller: 1}}},
			machine.Dismiss{Term: number, Group: "g", Caller: 1, Since: 1},
			machine.Reshard{Term: number, Group: "g", Version: 1},
		}
		known := make(map[byte]bool)
		for _, c := range leaders {
			known[machine.EncodeCommand(c)[0]] = true
			for name, p := range map[string]*peer{"another member": h.enter("n2", 7), "the session's process": h.victim} {
				h.try(name, p, true, func() {
					if _, code := p.propose(c); code != wire.CodeBad {
						t.Errorf("%#v by %s: %v", c, name, code)
					}
				})
			}
		}
		for _, c := range h.stolen() {
			known[machine.EncodeCommand(c)[0]] = true
		}
		known[machine.EncodeCommand(machine.Forget{})[0]] = true
		for kind := range 256 {
			_, err := machine.DecodeCommand([]byte{byte(kind)})
			unknown := err != nil && strings.Contains(err.Error(), "unknown command kind")
			if known[byte(kind)] == unknown {
				t.Errorf("a command of kind %d is known to the machine: %t; decide above whether streams may propose it", kind, !unknown)
			}
		}
	})
}

// A key that was shown before its session was open is of no use to another process either.
func TestALockIsNotStolenByAKeyShownEarly(t *testing.T) {
	onHeist(t, func(h *heist) {
		thief := h.enter("n2", 7)
		h.show(thief, key(1))
		h.show(h.victim, key(1))
		h.must(h.victim, machine.Open{Session: sid(1), Client: "v", Node: "n1", Boot: 5, TTL: uint64(ttl / time.Millisecond)})
		token := h.must(h.victim, machine.Acquire{Session: sid(1), Seq: 1, Key: "early"}).Token
		if o, code := thief.propose(machine.Release{Session: sid(1), Token: token}); code != wire.CodeStranger {
			h.t.Errorf("a release by another process: %+v, %v", o, code)
		}
		id := sid(1)
		if f := thief.ask(wire.Beat, id[:]); f.Code != wire.CodeStranger {
			h.t.Errorf("a beat by another process: %v", f.Code)
		}
	})
}

// Messages that no honest member sends are answered as bad, and cost nobody else
// anything.
func TestOddMessagesOnAStreamDoNothing(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		giant := make([]machine.SessionKey, wire.MaxAttach+1)
		h.try("giant attach", p, false, func() {
			if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: giant})); f.Code != wire.CodeBad {
				t.Errorf("giant attach: %v", f.Code)
			}
		})
		h.try("short beat", p, false, func() {
			if f := p.ask(wire.Beat, h.id[:15]); f.Code != wire.CodeBad {
				t.Errorf("short beat: %v", f.Code)
			}
		})
		for kind := range 256 {
			if k := wire.Type(kind); k != wire.Cancel && k != wire.Detach && k != wire.Describe && k != wire.Ready && k != wire.Summarize && k != wire.Find && k != wire.Attach {
				h.try("type", p, false, func() {
					if f := p.ask(k, nil); f.Code != wire.CodeBad {
						t.Errorf("type %d: %v", kind, f.Code)
					}
				})
			}
		}
		h.try("notices", p, false, func() {
			_ = p.Notify(wire.Propose+100, h.id[:])
			_ = p.Notify(wire.Event, h.id[:])
			_ = p.Notify(wire.Detach, h.id[:3])
		})
		before := h.dialAs("n2", 7, func() *term.Term { return h.Term() })
		h.try("a request before Attach", before, false, func() {
			if _, err := before.Call(t.Context(), wire.Beat, h.id[:]); err == nil {
				<-before.served
			}
		})
		unnamed := h.enter("n2", 7)
		h.try("a request without an ID", unnamed, false, func() {
			_ = unnamed.Notify(wire.Propose, machine.EncodeCommand(machine.Close{Session: h.id}))
			<-unnamed.served // it would escape the count of requests under way
		})
	})
}

// A stream keeps a bounded number of keys of sessions that never open, and forgets
// the sessions that have ended.
func TestAStreamShowsABoundedNumberOfKeys(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		many := make([]machine.SessionKey, wire.MaxAttach)
		for i := range many {
			many[i] = machine.SessionKey{199, byte(i), byte(i >> 8)}
		}
		h.show(p, many...)
		h.show(p, many...) // again: no more
		if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: keys(1)})); f.Code != wire.CodeBusy {
			t.Errorf("one key too many: %v", f.Code)
		}
		refusals := h.refused.Counts()[refused.Session]
		if _, code := p.propose(machine.Open{Session: sid(1), Client: "t", Node: "n2", Boot: 7, TTL: 3000}); code != wire.CodeBusy {
			t.Errorf("an Open while there is no room for its key: %v", code)
		}
		if n := h.refused.Counts()[refused.Session] - refusals; n != 0 {
			t.Errorf("%d refusals were counted", n)
		}
		if _, code := p.propose(machine.Open{Session: h.id, Client: "t", Node: "n2", Boot: 7, TTL: 3000}); code != wire.CodeStranger {
			t.Errorf("an Open of another's session: %v", code)
		}
		p.Notify(wire.Detach, func() []byte { id := many[0].ID(); return id[:] }())
		h.show(p, key(1))
		h.must(p, machine.Open{Session: sid(1), Client: "t", Node: "n2", Boot: 7, TTL: 3000})
		if o, _ := p.propose(machine.Acquire{Session: sid(1), Seq: 1, Key: held}); o.Code != machine.Queued {
			t.Errorf("%+v", o)
		}
		h.must(p, machine.Close{Session: sid(1)})
		id := sid(1)
		_ = p.Notify(wire.Detach, id[:])
		synctest.Wait()
		if open, fresh := h.Term().Shown("n2"); open != 0 || fresh != wire.MaxAttach-1 {
			t.Errorf("%d and %d keys are kept", open, fresh)
		}
	})
}

// refusals returns a Log for a test that is no honest member.
func refusals() *refused.Log { return refused.New(slog.New(slog.DiscardHandler)) }

// One member's sessions are bounded, by all of its processes together: it fills neither
// the memory of the voters nor the leader's time, and the others open theirs.
func TestAMembersSessionsAreBounded(t *testing.T) {
	onHeist(t, func(h *heist) {
		h.SetCheck(false)
		noisy := h.enter("noisy", 9)
		id := func(i int) machine.SessionID { return machine.SessionID{77, byte(i), byte(i >> 8)} }
		for i := range machine.MaxNodeSessions {
			h.Term().Decide(machine.Open{Session: id(i), Client: "c", Node: "noisy", Boot: uint64(1 + i%9), TTL: uint64(ttl / time.Millisecond)}, func(machine.Outcome, wire.Code) {})
		}
		synctest.Wait()
		key := machine.SessionKey{201}
		h.show(noisy, key)
		open := machine.Open{Session: key.ID(), Client: "c", Node: "noisy", Boot: 9, TTL: uint64(ttl / time.Millisecond)}
		if o, c := noisy.propose(open); c != wire.CodeOK || o.Code != machine.TooMuchOfNode || o.Field != machine.NodeSessions || o.Limit != machine.MaxNodeSessions {
			t.Errorf("one more session: %v, %+v", c, o)
		}
		if totals := h.refused.Totals(); len(totals) != 1 || totals[0].From != "noisy" || totals[0].Detail != "more sessions than a member may have" {
			t.Errorf("refused: %+v", totals)
		}
		other := machine.SessionKey{202}
		h.show(h.victim, other)
		h.must(h.victim, machine.Open{Session: other.ID(), Client: "c", Node: "n1", Boot: 5, TTL: uint64(ttl / time.Millisecond)})
		h.Term().Decide(machine.Close{Session: id(3)}, func(machine.Outcome, wire.Code) {})
		synctest.Wait()
		h.must(noisy, open)
	})
}

// A leader that was shown a member's keys and proof, true or false, cannot use them: under
// TLS a proof is for its own stream alone, and keys count on a proved stream of their
// signer alone.
func TestAShownKeyIsOfNoUseElsewhere(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		owner, thief := wire.NewKeySigner(), wire.NewKeySigner()
		here, elsewhere := []byte("this stream"), []byte("the stream to the false leader")
		key := owner.NewKey()
		attach := func(p *peer, proof *wire.KeyProof) wire.Code {
			return p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: []machine.SessionKey{key}, Proof: proof})).Code
		}
		h.bound = here
		p := h.enter("n1", 5)
		if code := attach(p, owner.Prove(here)); code != wire.CodeOK {
			t.Fatalf("the owner attaches: %v", code)
		}
		h.must(p, machine.Open{Session: key.ID(), Client: "o", Node: "n1", Boot: 5, TTL: uint64(ttl / time.Millisecond)})
		h.show(p) // the stream stays proved
		token := h.must(p, machine.Acquire{Session: key.ID(), Seq: 1, Key: "mine"}).Token
		for name, x := range map[string]struct {
			proof *wire.KeyProof
			code  wire.Code
		}{
			"the key alone":                {nil, wire.CodeOK},
			"the key and its proof":        {owner.Prove(elsewhere), wire.CodeBad},
			"the key and a thief's proof":  {thief.Prove(here), wire.CodeOK},
			"a proof under another's name": {&wire.KeyProof{Signer: owner.Prove(here).Signer, Signature: thief.Prove(here).Signature}, wire.CodeBad},
			"a proof that is nothing":      {&wire.KeyProof{}, wire.CodeBad},
			"a proof for an empty stream":  {owner.Prove([]byte{}), wire.CodeBad},
		} {
			q := h.enter("n1", 5)
			h.try(name, q, true, func() {
				if code := attach(q, x.proof); code != x.code {
					t.Errorf("%s: %v", name, code)
				}
				if o, code := q.propose(machine.Release{Session: key.ID(), Token: token}); code != wire.CodeStranger {
					t.Errorf("%s: %+v, %v", name, o, code)
				}
				id := key.ID()
				if f := q.ask(wire.Beat, id[:]); f.Code != wire.CodeStranger {
					t.Errorf("%s: a beat counts", name)
				}
			})
		}
	})
}
