package link

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file keeps a false leader from holding this member. An answer to Attach proves
// the voter role of the leader and nothing about an election: any voter can claim any
// term. A member without raft believes such an answer at first, because asking others
// first would delay each change of leader, and because a member may reach nobody but
// the leader. These rules undo a false belief:
//
//   - A leader that answers is not left for a claim. When a leader of a higher term
//     attaches this member beside an upstream that is not in doubt, the present
//     leader is asked to confirm itself by a round. A majority that confirms the
//     present leader after the other one claims to be elected has not elected the
//     other one: then the claim is dropped. A leader that is too busy for the question
//     has answered, and is asked again. The other leader serves as soon as a
//     majority of the jury below, itself included, tells of its election, and without an
//     answer of the present leader after timing.Suspect.
//   - The jury, the voters as known before the present leader attached this member,
//     tell their leader and its term now and then. If a majority of the jury tells lower
//     terms, or another leader of the present term, in answers to questions put after
//     the attachment, no majority has elected the present leader: the leader is left, and
//     the highest term known is lowered to the terms told. A voter that has elected
//     the leader of a term never tells a lower term again, nor another leader of the term.
//   - Of one term there is one leader. A second one is not taken in place of a leader that
//     answers, unless the jury tells so.
//   - A leader that is not in the jury, and of which nobody in the jury has told, has the whole jury
//     asked at once, for any leader that it knows. This member's own raft has a voice, if this
//     member votes.
//   - The term of such a leader counts once anybody in the jury tells of it. If the leader is
//     left before, the highest term of before counts again, and the voters of before.
//   - A member that has found no leader for long lowers its highest term to the lowest
//     term that a voter tells. Terms only save attempts with deposed leaders: a deposed
//     leader confirms nothing, so nothing is granted by a leader of an old term.
//
// The second rule fails only where the honest voters in reach are no majority of the
// jury: a voter lies, and so many others have ended that no leader is confirmed without
// the liar. A liar that counts in each majority can elect two leaders as well, and no
// rule among members is safe from that liar.
//
// A leader found false is not attached to for a while, longer each time: by its name, or, where
// others can take the name, where it was found. The jury tells names: whoever takes the name of
// the true leader, and its term, is not found out. A false
// leader that is a voter can make a member without raft, until the jury has spoken,
// believe in locks that are not held. No protocol among members helps against such a
// voter: the tokens of fencing do. The false leader cannot touch the locks of
// members that are attached elsewhere.

// jury is the voters that judge the present leader.
type jury struct {
	members []string         // addresses
	voices  map[string]voice // told since the attachment or the loss of the leader, by address
	against bool             // a majority has spoken against the present leader
	base    uint64           // the highest term before the leaders of which no jury has told
	doubts  bool             // nobody in the jury has told of the present leader before it served
	reached bool             // a member of the jury, which votes, has answered since the attachment
}

// voice is a voter's word on its leader.
type voice struct {
	term   uint64
	leader string // its name
}

// seatJury chooses the jury of a leader that attaches this member now, before the
// leader tells its own voters.
func (f *finder) seatJury() {
	if up, ok := f.up.(*remote); !ok || !f.jury.doubts || f.spokenFor(up) {
		f.jury.base = f.link.servedTerm()
		if told := f.link.told(); ok && !f.jury.against && f.servedLong() && len(told) > 0 {
			f.jury.members = told // one leader follows another, with no loss between
		}
	}
	f.jury.voices, f.jury.against, f.jury.doubts, f.jury.reached = make(map[string]voice), false, false, false
	if len(f.jury.members) == 0 {
		f.jury.members = f.voters()
		if len(f.jury.members) > 0 && f.link.cfg.Votes() {
			f.jury.members = append(f.jury.members, f.link.cfg.Self.Addr)
		}
	}
}

// servedLong reports whether the present leader has served for so long that its list of the
// voters counts.
func (f *finder) servedLong() bool { return time.Since(f.served) >= timing.DirectMost }

// spokenFor reports whether any member of the jury tells of the present leader and its term.
func (f *finder) spokenFor(up *remote) bool { return f.speaks(voice{up.term, f.before.Name}) }

// speaks reports whether any member of the jury has told v.
func (f *finder) speaks(v voice) bool {
	return slices.ContainsFunc(f.jury.members, func(addr string) bool { return f.jury.voices[addr] == v })
}

// agreedOn reports whether the jury agrees on the present leader.
func (f *finder) agreedOn(up *remote) bool {
	return f.jury.agrees(f.before.Name, up.term, f.before.Addr)
}

// isVoter reports whether a voter is known at a place, by the jury or the leader; or no voter is.
func (f *finder) isVoter(at place) bool {
	told := f.link.told()
	nobody := len(f.jury.members)+len(told) == 0
	return nobody || at.via == "" && (slices.Contains(f.jury.members, at.addr) || slices.Contains(told, at.addr))
}

// vouchedFor reports whether a member of the jury is the leader that was asked, or has told of it;
// or this member's own raft has. What the leader tells of the voters says nothing of itself.
func (f *finder) vouchedFor(r *reply) bool {
	at := r.ask.at
	c := f.claims[at.addr]
	teller := c.via == "" || slices.Contains(f.jury.members, c.via)
	present, ok := f.up.(*remote)
	switch {
	case f.speaks(voice{r.up.term, r.name}), ok && !f.jury.doubts && present.term == r.up.term && f.before.Name == r.name:
		return true
	}
	return at.via == "" && (slices.Contains(f.jury.members, at.addr) || c.voter && c.term == r.up.term && teller)
}

// settleJury takes over the voters told by a leader that has served for long, and
// begins to listen anew, since the leader is lost.
func (f *finder) settleJury() {
	told := f.link.told()
	up, ok := f.up.(*remote)
	unknown := ok && f.jury.doubts && len(f.jury.members) > 0 && !f.spokenFor(up)
	switch {
	case unknown && !f.jury.reached && f.servedLong():
		f.jury.members = nil // all of them have gone, and the voters are others
	case f.jury.against || unknown:
		if unknown {
			f.link.lowerTerm(f.jury.base)
		}
		f.link.learn(f.jury.members) // a false leader's list is worth nothing
	case f.servedLong() && len(told) > 0:
		f.jury.members = told
	}
	f.jury.voices, f.jury.against = make(map[string]voice), false
}

// hearVoter takes the term that a voter tells on its own stream.
func (f *finder) hearVoter(a *ask, h wire.Hint) {
	if !h.Votes || h.Leader == "" || f.jury.voices == nil || a.at.via != "" {
		return
	}
	f.jury.hear(a.at.addr, voice{h.Term, h.Leader})
	f.judge()
}

// hearSelf takes the word of this member's own raft.
func (f *finder) hearSelf() {
	self := f.link.cfg.Self
	if f.jury.voices == nil || !slices.Contains(f.jury.members, self.Addr) {
		return
	}
	v := voice{leader: self.Name}
	if own := f.link.cfg.Leading(); own != nil {
		v.term = own.Number()
	} else if p, term, follows := f.link.cfg.Guess(); follows && p.Name != "" && p.Name != self.Name { // it leads no more
		v = voice{term, p.Name}
	} else {
		return
	}
	if f.jury.voices[self.Addr] != v {
		f.jury.hear(self.Addr, v)
		if f.judge(); f.jury.against {
			f.link.look.Wake() // the present look is over
		}
	}
}

// judge lowers the highest term, and leaves the present leader, if a majority of the jury has
// spoken against it.
func (f *finder) judge() {
	term := f.link.servedTerm()
	up, attached := f.up.(*remote)
	if attached {
		term = up.term
	}
	against, highest := 0, uint64(0)
	for _, addr := range f.jury.members {
		v, told := f.jury.voices[addr]
		if told && (v.term < term || attached && v.term == term && v.leader != f.before.Name) {
			against++
			highest = max(highest, v.term)
		}
	}
	if against <= len(f.jury.members)/2 || f.up != nil && !attached {
		return
	}
	f.link.lowerTerm(highest)
	if attached {
		f.jury.against = true
		f.ban(banned(f.before.Name, place{f.before.Addr, up.via}, up.named), fmt.Sprintf("a leader of term %d, and a majority of the voters is in term %d at most, or has another leader", term, highest))
	}
}

// hear notes the word of the voter at addr.
func (j *jury) hear(addr string, v voice) {
	if len(j.voices) >= 4*maxVoters {
		clear(j.voices)
	}
	j.voices[addr] = v
}

// elected reports whether a majority of the jury tells that a leader was elected in a
// term, or tells of a later term.
func (j *jury) elected(leader string, term uint64) bool {
	n := 0
	for _, addr := range j.members {
		if v := j.voices[addr]; v.term > term || v == (voice{term, leader}) {
			n++
		}
	}
	return n > len(j.members)/2
}

// agrees reports whether a majority of the jury, the leader at addr included, tells
// of the leader and its term.
func (j *jury) agrees(leader string, term uint64, addr string) bool {
	n := 0
	for _, m := range j.members {
		if m == addr || j.voices[m] == (voice{term, leader}) {
			n++
		}
	}
	return n > len(j.members)/2
}

// askJury asks the rest of the jury, once one voice speaks of another leader or term,
// while there is a rival, and while nobody has vouched for the leader.
func (f *finder) askJury(ctx context.Context, up *remote, later func(time.Time)) {
	if f.agreedOn(up) && f.rival == nil {
		return
	}
	differs := f.jury.doubts && time.Since(f.served) < timing.HoldFind(f.link.TTL())
	for _, addr := range f.jury.members {
		v, told := f.jury.voices[addr]
		differs = differs || told && v != voice{up.term, f.before.Name}
	}
	if !differs && f.rival == nil {
		return
	}
	for _, addr := range f.jury.members {
		if _, told := f.jury.voices[addr]; !told && addr != f.before.Addr {
			f.start(ctx, &ask{at: place{addr: addr}, once: true, above: up.term, hold: timing.HoldFind(f.link.TTL())}, later)
		}
	}
}

// relent lowers the highest term to the lowest term that any voter tells, after a long
// search. The highest term told would let one liar keep this member from every leader,
// for as long as the other voters in reach are no majority of the jury.
func (f *finder) relent(ttl time.Duration, later func(time.Time)) {
	due := f.since.Add(4 * timing.HoldFind(ttl))
	if time.Now().Before(due) {
		later(due)
		return
	}
	lowest := uint64(0)
	for _, v := range f.jury.voices {
		if lowest == 0 || v.term < lowest {
			lowest = v.term
		}
	}
	if lowest > 0 {
		f.link.lowerTerm(lowest)
	}
}

// lowerTerm lowers the highest term to have served this member.
func (k *Link) lowerTerm(term uint64) {
	k.mu.Lock()
	k.term = min(k.term, term)
	k.mu.Unlock()
}

// rival is an attached leader of a higher term, while the present leader is asked to
// confirm itself.
type rival struct {
	reply   reply
	verdict chan wire.Code // of the present leader; has room for one
	due     time.Time      // the present leader is left without an answer until then
	again   time.Time      // when the present leader, which was busy, is asked again; zero: it is being asked
}

// challenge keeps an attached leader back if the present leader is not in doubt, and
// asks the present leader. It reports false if the other leader is to serve now.
func (f *finder) challenge(r reply) bool {
	now, ok := f.up.(*remote)
	if !ok || r.up.term == now.term || now.doubted() || ended(now) || f.jury.elected(r.name, r.up.term) {
		return false
	}
	if r.ask.at.via == "" { // a relay can answer for any address
		if p, term, follows := f.link.cfg.Guess(); follows && term == r.up.term && p.Addr == r.ask.at.addr {
			return false // this member's own raft follows the leader
		}
		if f.rival == nil || r.up.term >= f.rival.reply.up.term { // else it is of before the election
			f.jury.hear(r.ask.at.addr, voice{r.up.term, r.name})
		}
	}
	if f.rival != nil {
		f.discard(r.up)
		f.restAt(r.ask)
		return true
	}
	rv := &rival{reply: r, verdict: make(chan wire.Code, 1), due: time.Now().Add(timing.Suspect(f.link.TTL()))}
	f.rival = rv
	for _, addr := range f.jury.members {
		if f.jury.voices[addr].term < r.up.term {
			delete(f.jury.voices, addr) // of before the election, maybe
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
			f.ban(rv.reply.banned(), fmt.Sprintf("a leader of term %d, and the leader of a lower term is confirmed by a majority", rv.reply.up.term))
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
	if ended(rv.reply.up) || !f.better(&rv.reply) {
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
		f.discard(rv.reply.up)
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
