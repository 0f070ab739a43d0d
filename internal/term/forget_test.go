package term_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file tries to have the sessions of a process ended by a process that poses as a later
// one of the same name.

// otherDir is the key of a directory of the thief's own.
var otherDir = wire.NewDirSeed().Key()

// pastOf is the Forget of the victim's process.
func pastOf(dir *wire.DirKey) machine.Forget {
	return machine.Forget{Node: "n1", Boot: 5, Dir: dir.ID()}
}

// prove shows a proof of a directory.
func prove(p *peer, proof *wire.DirProof) wire.Code {
	return p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Dir: proof})).Code
}

// leave ends the victim's stream.
func (h *heist) leave() {
	h.victim.Close()
	<-h.victim.served
	synctest.Wait()
}

// While the victim has no stream to the leader, a process that has its name, a later boot and
// the ID of its directory ends none of its sessions, unless it proves on this very stream to
// have the directory.
func TestOnlyTheDirectoryForgetsItsPast(t *testing.T) {
	here, elsewhere := []byte("this stream"), []byte("the stream to the false leader")
	forged := &wire.DirProof{Key: victimDir.Prove(here).Key, Signature: otherDir.Prove(here).Signature}
	for _, x := range []struct {
		name    string
		bound   []byte // of the thief's stream; nil: without TLS
		proof   *wire.DirProof
		shown   wire.Code
		forget  machine.Forget
		verdict wire.Code
		counted bool
	}{
		{"the name alone", here, nil, wire.CodeOK, pastOf(victimDir), wire.CodeBad, true},
		{"no directory", here, nil, wire.CodeOK, pastOf(nil), wire.CodeBad, true},
		{"another directory", here, otherDir.Prove(here), wire.CodeOK, pastOf(victimDir), wire.CodeBad, true},
		{"the proof for another stream", here, victimDir.Prove(elsewhere), wire.CodeBad, pastOf(victimDir), wire.CodeBad, true},
		{"the key without a signature", here, victimDir.Prove(nil), wire.CodeBad, pastOf(victimDir), wire.CodeBad, true},
		{"another's signature", here, forged, wire.CodeBad, pastOf(victimDir), wire.CodeBad, true},
		{"without TLS, the name alone", nil, nil, wire.CodeOK, pastOf(victimDir), wire.CodeBad, true},
		{"without TLS, another directory", nil, otherDir.Prove(nil), wire.CodeOK, pastOf(victimDir), wire.CodeBad, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			onHeist(t, func(h *heist) {
				h.leave()
				h.bound = x.bound
				thief := h.enter("n1", 6)
				h.try(x.name, thief, x.counted, func() {
					if code := prove(thief, x.proof); code != x.shown {
						h.t.Errorf("shown: %v", code)
					}
					if _, code := thief.propose(x.forget); code != x.verdict {
						h.t.Errorf("forget: %v", code)
					}
				})
			})
		})
	}
}

// A Forget with the thief's own directory is carried out, and ends nothing: the victim's
// sessions stay, and the victim opens new ones.
func TestAThiefForgetsItsOwnDirectoryAlone(t *testing.T) {
	onHeist(t, func(h *heist) {
		h.leave()
		thief := h.enter("n1", 6)
		prove(thief, otherDir.Prove(nil))
		before := h.scene()
		h.must(thief, pastOf(otherDir))
		after := h.scene()
		before.applied++
		if before.applied != after.applied || before.session.Grants != after.session.Grants || !h.Alive(h.id) {
			h.t.Errorf("%+v became %+v", before, after)
		}
		again, fresh := h.enter("n1", 5), machine.SessionKey{201}
		h.show(again, fresh)
		h.must(again, machine.Open{Session: fresh.ID(), Client: "v", Node: "n1", Boot: 5, Dir: victimDir.ID(), TTL: uint64(ttl / time.Millisecond)})
	})
}

// The one look at a signature is the last on a stream, so that no stream costs a leader many.
func TestADisprovedDirectoryIsNotLookedAtAgain(t *testing.T) {
	onHeist(t, func(h *heist) {
		h.leave()
		here := []byte("this stream")
		h.bound = here
		thief := h.enter("n1", 6)
		h.try("a second proof", thief, true, func() {
			if code := prove(thief, &wire.DirProof{}); code != wire.CodeBad {
				h.t.Errorf("nothing is shown: %v", code)
			}
			prove(thief, victimDir.Prove(here))
			if _, code := thief.propose(pastOf(victimDir)); code != wire.CodeBad {
				h.t.Errorf("forget: %v", code)
			}
		})
	})
}

// The directory's own later process has the sessions ended at once, under TLS and without,
// also where members share a certificate.
func TestTheDirectoryForgetsItsPast(t *testing.T) {
	for name, bound := range map[string][]byte{"TLS": []byte("this stream"), "plain": nil} {
		t.Run(name, func(t *testing.T) {
			onHeist(t, func(h *heist) {
				h.leave()
				h.bound = bound
				later := h.enter("n1", 6)
				if code := prove(later, victimDir.Prove(bound)); code != wire.CodeOK {
					h.t.Fatalf("shown: %v", code)
				}
				h.must(later, pastOf(victimDir))
				if h.Alive(h.id) {
					h.t.Error("the session of the earlier process was not ended")
				}
			})
		})
	}
	onHeist(t, func(h *heist) {
		h.leave()
		later := &term.Subscriber{Node: "n1", Boot: 6, Shared: true, Dir: victimDir.ID()}
		if !h.Term().Join(later) {
			h.t.Fatal("no term")
		}
		code := make(chan wire.Code, 1)
		h.Term().Propose(later, pastOf(victimDir), func(_ machine.Outcome, c wire.Code) { code <- c })
		if c := <-code; c != wire.CodeOK || h.Alive(h.id) {
			h.t.Errorf("a shared certificate: %v, and the session lives: %t", c, h.Alive(h.id))
		}
	})
}

// Nobody ends the sessions of a process that is attached, not even a later process with the
// directory, which is a copy then; and nobody those of another name, of the own process or of
// a later one.
func TestAnAttachedProcessIsNotForgotten(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		later, other, same := h.enter("n1", 6), h.enter("n2", 7), h.enter("n1", 5)
		for _, p := range []*peer{later, other, same} {
			prove(p, victimDir.Prove(nil))
		}
		forget := pastOf(victimDir)
		for name, p := range map[string]*peer{"another name": other, "the process itself": same} {
			h.try(name, p, true, func() {
				if _, code := p.propose(forget); code != wire.CodeBad {
					t.Errorf("%s: %v", name, code)
				}
			})
		}
		h.try("a later process", later, false, func() {
			if _, code := later.propose(forget); code != wire.CodeBusy {
				t.Errorf("a later process: %v", code)
			}
		})
		same.Close()
		<-same.served
		h.leave()
		h.must(later, forget) // its streams have ended
		if h.Alive(h.id) {
			t.Error("the session of the earlier process was not ended")
		}
	})
}

// A boot is a time. Made-up processes of the far future would fill the table's list of ended
// processes until that time, and the last boot of all for ever.
func TestNoProcessOfTheFutureIsForgotten(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		liar := h.enter("n1", math.MaxUint64)
		prove(liar, otherDir.Prove(nil))
		for _, boot := range []uint64{math.MaxUint64 - 1, math.MaxInt64, uint64(time.Now().Add(25 * time.Hour).UnixNano())} {
			h.try("the future", liar, false, func() {
				if _, code := liar.propose(machine.Forget{Node: "n1", Boot: boot, Dir: otherDir.ID()}); code != wire.CodeNo {
					t.Errorf("boot %d: %v", boot, code)
				}
			})
		}
	})
}
