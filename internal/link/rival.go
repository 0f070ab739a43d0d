package link

import (
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// rival is an attached leader of a higher term, while the present leader is asked to
// confirm itself.
type rival struct {
	reply   reply
	verdict chan wire.Code // of the present leader; has room for one
	due     time.Time      // the present leader is left without an answer until then
	again   time.Time      // when the present leader, which was busy, is asked again; zero: it is being asked
}

// challenge keeps an attached leader back if the present leader answers and is not starved, and
// asks the present leader. It reports false if the other leader is to serve now.
func (f *finder) challenge(r reply) bool {
	now, ok := f.up.(*remote)
	if !ok || r.up.term == now.term || now.doubted() || ended(now) || f.jury.elected(r.name, r.up.term) {
		return false
	}
	if r.ask.at.direct() != "" {
		if p, term, follows := f.link.cfg.Guess(); follows && term == r.up.term && p.Addr == r.ask.at.addr {
			return false // this member's own raft follows the leader
		}
		if f.rival == nil || r.up.term >= f.rival.reply.up.term { // else it is of before the election
			f.jury.hear(r.ask.at.addr, voice{r.up.term, r.name})
		}
	}
	if f.rival != nil {
		f.discard(&r)
		f.restAt(r.ask)
		return true
	}
	rv := &rival{reply: r, verdict: make(chan wire.Code, 1), due: time.Now().Add(timing.Suspect(f.link.TTL()))}
	f.rival = rv
	for _, addr := range f.jury.members {
		// Of before the election, maybe. But beside a leader in doubt the words against it stay, however
		// many others it offers.
		if f.jury.voices[addr].term < r.up.term && !f.inDoubt() {
			delete(f.jury.voices, addr)
		}
		delete(f.rests, place{addr: addr})
	}
	f.askPresent(now)
	return true
}

// askPresent asks the present leader to confirm itself. Any key serves: each reading is
// confirmed by a round begun after the question.
func (f *finder) askPresent(now *remote) {
	rv := f.rival
	rv.again = time.Time{}
	now.Read(replica.Query{Key: "leader"}, func(_ replica.Answer, c wire.Code) {
		rv.verdict <- c
		f.link.look.Wake()
	})
}

// askBusy asks a present leader again that was too busy to confirm itself.
func (f *finder) askBusy(now *remote, later func(time.Time)) {
	rv := f.rival
	if rv == nil {
		return
	}
	later(rv.due)
	switch {
	case rv.again.IsZero() || now == nil:
	case time.Now().Before(rv.again):
		later(rv.again)
	default:
		f.askPresent(now)
	}
}

// judgeRival returns the reply of the rival if the rival is to serve now.
func (f *finder) judgeRival() *reply {
	rv := f.rival
	if rv == nil {
		return nil
	}
	elected := f.jury.elected(rv.reply.name, rv.reply.up.term)
	select {
	case c := <-rv.verdict:
		if c == wire.CodeBusy && !elected { // the leader is there
			rv.again = time.Now().Add(timing.LeastBackoff)
			rv.due = time.Now().Add(timing.Suspect(f.link.TTL()))
			return nil
		}
		if c == wire.CodeOK && !elected {
			if !f.inDoubt() || f.inJury(place{f.before.Addr, f.up.(*remote).via}) { // else it may be false
				f.ban(rv.reply.banned(), fmt.Sprintf("a leader of term %d, and the leader of a lower term is confirmed by a majority", rv.reply.up.term))
			}
			f.failed(rv.reply.ask)
			f.restAt(rv.reply.ask)
			f.dropRival()
			return nil
		}
	default:
		if !elected && f.up != nil && !ended(f.up) && time.Now().Before(rv.due) {
			return nil
		}
	}
	if soon := f.tooSoon(&rv.reply); soon || ended(rv.reply.up) || !f.better(&rv.reply) {
		if soon {
			f.restTooSoon(rv.reply.ask.at)
		}
		f.dropRival()
		return nil
	}
	f.rival = nil
	return &rv.reply
}

// dropRival leaves the rival, if any.
func (f *finder) dropRival() {
	if rv := f.rival; rv != nil {
		f.rival = nil
		f.discard(&rv.reply)
	}
}

// ban is the time during which a leader found false is not attached to.
type ban struct {
	until time.Time
	pause time.Duration
}

const maxBans = 64

// ban keeps this member from a leader found false, for timing.DirectAgain and then
// twice as long each time.
func (f *finder) ban(who bannee, why string) {
	f.link.cfg.Self.Refused.Note(refused.Claim, who.name, why)
	b := f.bans[who]
	b.pause = min(max(2*b.pause, timing.DirectAgain), timing.DirectMost)
	b.until = time.Now().Add(b.pause)
	if len(f.bans) >= maxBans {
		clear(f.bans)
	}
	f.bans[who] = b
}

func (f *finder) isBanned(who bannee) bool { return time.Now().Before(f.bans[who].until) }

// bannee is what is banned with a false leader: a proven name anywhere, and any other name at
// the place where it was found. Elsewhere the name is of a member that had it taken: a false
// leader may have the leader's own address, behind a relay that lies.
type bannee struct {
	name string
	at   place // zero: anywhere
}

func banned(name string, at place, named bool) bannee {
	if named {
		return bannee{name: name}
	}
	return bannee{name, at}
}

func (r *reply) banned() bannee { return banned(r.name, r.ask.at, r.up.named) }
