package link

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file keeps a false leader from holding this member. An answer to Attach proves the voter
// role of the leader and nothing about an election: any voter can claim any term. A member without
// raft believes such an answer at first, because asking others first would delay each change of
// leader, and because a member may reach nobody but the leader. These rules undo a false belief:
//
//   - A leader that answers is not left for a claim. When a leader of a higher term attaches this
//     member beside an upstream that is not silent, the present leader is asked to confirm itself
//     by a round. A majority that confirms the present leader after the other one claims to be
//     elected has not elected the other one: then the claim is dropped, and its bearer banned,
//     unless the present leader is in doubt itself, and not of the jury. A leader that is too busy for the question has
//     answered, and is asked again. The other leader serves as soon as a majority of the jury
//     below, itself included, tells of its election, and without an answer of the present leader
//     after timing.Suspect.
//   - The jury, the voters as known before the present leader attached this member, tell their
//     leader and its term now and then. If a majority of the jury tells lower terms, or another
//     leader of the present term, in answers to questions put after the attachment, no majority has
//     elected the present leader: the leader is left, and the highest term known is lowered to the
//     terms told. The words count on, for the leader that they name. A voter that has elected the
//     leader of a term never tells a lower term again, nor another leader of the term.
//   - Of one term there is one leader. A second one is not taken in place of a leader that answers,
//     unless the jury tells so.
//   - A leader that was not found where a member of the jury is, is in doubt until somebody in the
//     jury tells of it, or this member's own raft, if this member votes; so is the first leader of
//     all, unless it is the whole jury. Until then the whole jury is asked for any leader that it
//     knows, again and again, before any other place. Whoever has told of another leader, not of a
//     later term, is asked for the next one: the word may be of before the election.
//   - One leader on which the jury has not agreed is not taken after the other without a pause,
//     longer each time: the jury needs time to answer, and begins anew with each. The same leader
//     of the same term comes back without a pause, if nobody in the jury has told otherwise for
//     timing.Dial.
//   - The voters told by a leader that is not in doubt, and has served for timing.DirectMost, are
//     the next jury.
//   - When a leader in doubt is lost, or gives way to another, the highest term and the voters of
//     before count again. But where the leader served for timing.DirectMost, and no voter of the
//     jury has answered for as long, the term and the voters that it told count for the search: the
//     jury may have moved. The jury stays, and judges the leader once it is in reach. After
//     timing.JuryGone without an answer, and with no leader of whom it told, the voters told by the
//     present leader take its place, unless this member votes.
//   - A member that has found no leader for long lowers its highest term to the lowest term that a
//     voter tells. Terms only save attempts with deposed leaders: a deposed leader confirms
//     nothing, so nothing is granted by a leader of an old term.
//
// The second rule fails only where the honest voters in reach are no majority of the jury: a voter
// lies, and so many others have ended that no leader is confirmed without the liar. A liar that
// counts in each majority can elect two leaders as well, and no rule among members is safe from
// that liar.
//
// A leader found false is not attached to for a while, longer each time: by its name, or, where
// others can take the name, where it was found. The jury tells names: whoever takes the name of the
// true leader, and its term, is not found out. A false leader that is a voter can make a member
// without raft, until the jury has spoken, believe in locks that are not held. No protocol among
// members helps against such a voter: the tokens of fencing do. The false leader cannot touch the
// locks of members that are attached elsewhere.

// jury is the voters that judge the present leader.
type jury struct {
	members []string         // addresses
	voices  map[string]voice // told since the leader was first attached to, or was lost or found false, by address
	against bool             // a majority has spoken against the present leader
	doubts  bool             // nobody in the jury has told of the present leader
	heard   time.Time        // when a voter in the jury last answered, or the first of several leaders in doubt attached this member
	base    uint64           // the highest term before the present leader
	listed  []string         // the voters as told before the present leader

	wait  time.Time     // until then no further leader is taken on which the jury does not agree
	pause time.Duration // for which the latest one was put off
	back  voice         // the leader before, if it is not put off; zero: none
}

// voice is a voter's word on its leader.
type voice struct {
	term   uint64
	leader string // its name
}

// seatJury chooses the jury of a leader that attaches this member now, before the
// leader tells its own voters.
func (f *finder) seatJury(leader string, term uint64) {
	if up, ok := f.up.(*remote); ok && up.term == term && f.before.Name == leader { // on another stream
		f.putOff()
		return
	}
	if f.up != nil { // one leader follows another, with no loss between
		f.settleJury()
	}
	f.jury.voices, f.jury.doubts = make(map[string]voice), false
	if f.jury.heard.IsZero() {
		f.jury.heard = time.Now()
	}
	if len(f.jury.members) == 0 {
		f.jury.members = f.voters()
		if len(f.jury.members) > 0 && f.link.cfg.Votes() {
			f.jury.members = append(f.jury.members, f.link.cfg.Self.Addr)
		}
	}
	f.jury.base, f.jury.listed = f.link.servedTerm(), f.link.told()
	if len(f.jury.listed) == 0 {
		f.jury.listed = f.jury.members
	}
}

// servedLong reports whether the present leader has served on its stream for so long that its list
// of the voters counts.
func (f *finder) servedLong() bool { return time.Since(f.served) >= timing.DirectMost }

// believeList has the voters judge the next leader whom the present one has told, if it has served
// for long and is not in doubt.
func (f *finder) believeList() {
	if told := f.link.told(); !f.inDoubt() && !f.jury.against && f.servedLong() && len(told) > 0 {
		f.jury.members = told
	}
}

// inDoubt reports whether nobody in the jury has told of the present leader.
func (f *finder) inDoubt() bool {
	_, attached := f.up.(*remote)
	return attached && f.jury.doubts && len(f.jury.members) > 0
}

// speaks reports whether any member of the jury has told v.
func (f *finder) speaks(v voice) bool {
	return slices.ContainsFunc(f.jury.members, func(addr string) bool { return f.jury.voices[addr] == v })
}

// agreedOn reports whether the jury agrees on the present leader.
func (f *finder) agreedOn(up *remote) bool {
	return f.jury.agrees(f.before.Name, up.term, f.heardAt(up))
}

// disputed reports whether a member of the jury has told of another leader than the present one.
func (f *finder) disputed(up *remote) bool {
	return slices.ContainsFunc(f.jury.members, func(addr string) bool {
		v, told := f.jury.voices[addr]
		return told && v != voice{up.term, f.before.Name}
	})
}

// heardAt returns the address of the present leader, or "" if it is behind a relay: then its word is not that
// of a voter at the address.
func (f *finder) heardAt(up *remote) string { return place{f.before.Addr, up.via}.direct() }

// inJury reports whether a member of the jury is at a place.
func (f *finder) inJury(at place) bool { return slices.Contains(f.jury.members, at.direct()) }

// isVoter reports whether a voter is known at a place, by the jury or the leader; or no voter is.
func (f *finder) isVoter(at place) bool {
	told := f.link.told()
	nobody := len(f.jury.members)+len(told) == 0
	return nobody || f.inJury(at) || slices.Contains(told, at.direct())
}

// vouchedFor reports whether a member of the jury is the leader that was asked, or has told of it;
// or this member's own raft has. What the leader tells of the voters says nothing of itself.
func (f *finder) vouchedFor(r *reply) bool {
	at := r.ask.at
	c := f.claims[at.addr]
	teller := c.via == "" || slices.Contains(f.jury.members, c.via)
	present, ok := f.up.(*remote)
	return f.speaks(voice{r.up.term, r.name}) ||
		ok && !f.jury.doubts && present.term == r.up.term && f.before.Name == r.name ||
		f.inJury(at) || at.via == "" && c.voter && c.term == r.up.term && teller
}

// settleJury decides what counts of a leader that is lost, or gives way to another: its term, and
// the voters that it told. Then it begins to listen anew.
func (f *finder) settleJury() {
	f.replaceJury()
	f.putOff()
	switch {
	case f.jury.against:
		f.link.learn(f.jury.members)
	case !f.inDoubt():
		f.believeList()
		f.jury.heard = time.Time{}
	case !f.servedLong() || time.Since(f.jury.heard) < timing.DirectMost:
		f.link.lowerTerm(f.jury.base)
		f.link.learn(f.jury.listed)
	}
	if !f.jury.against { // else the voices name the next leader
		f.jury.voices = make(map[string]voice)
	}
	f.jury.against = false
}

// putOff has another leader wait for the word of the jury, since the questions to the jury begin
// anew with it: longer each time, until the jury agrees on a leader, or one serves for long.
//
// The same leader of the same term comes back without a pause, if the jury had the time to tell otherwise.
func (f *finder) putOff() {
	up, ok := f.up.(*remote)
	f.jury.back = voice{}
	if ok && !f.disputed(up) && time.Since(f.served) >= timing.Dial {
		f.jury.back = voice{up.term, f.before.Name}
	}
	if !ok || len(f.jury.members) == 0 || f.servedLong() || f.agreedOn(up) {
		f.jury.pause, f.jury.wait = 0, time.Time{}
		return
	}
	f.jury.pause = min(max(2*f.jury.pause, timing.MostBackoff(f.link.TTL())), timing.Dial)
	if f.jury.against {
		f.jury.pause = timing.Dial // the jury is in reach, and the leader that it names does not wait
	}
	f.jury.wait = time.Now().Add(f.jury.pause)
}

// tooSoon reports whether the reply is of one more leader before the jury has had the time to
// tell of the last one. A majority that tells of this one, or this member's own raft, is enough.
func (f *finder) tooSoon(r *reply) bool {
	if !time.Now().Before(f.jury.wait) || f.jury.back == (voice{r.up.term, r.name}) {
		return false
	}
	addr := r.ask.at.direct()
	p, term, follows := f.link.cfg.Guess()
	return !f.jury.agrees(r.name, r.up.term, addr) && !(follows && term == r.up.term && p.Addr == addr)
}

// restTooSoon has a leader that came too soon asked again when it may serve.
func (f *finder) restTooSoon(at place) {
	f.rests[at] = rest{until: f.jury.wait.Add(jitter(timing.LeastBackoff)), pause: f.rests[at].pause}
}

// replaceJury takes the voters told by the present leader for the jury, if the whole jury has
// gone: beside leaders in doubt, nobody there has answered for timing.JuryGone.
func (f *finder) replaceJury() {
	if f.inDoubt() && f.servedLong() && time.Since(f.jury.heard) >= timing.JuryGone && !f.link.cfg.Votes() {
		f.jury.doubts = false
		f.believeList()
	}
}

// hearVoter takes the term that a voter tells on its own stream.
func (f *finder) hearVoter(a *ask, h wire.Hint) {
	if !h.Votes || h.Leader == "" || f.jury.voices == nil || a.at.via != "" {
		return
	}
	f.note(a.at.addr, voice{h.Term, h.Leader})
	f.judge()
}

// note notes the word of the voter at addr. Its first one since the jury listens, if it is for another
// leader than the present one, and that is in doubt or there is none, has the rest of the jury asked at once.
func (f *finder) note(addr string, v voice) {
	_, before := f.jury.voices[addr]
	f.jury.hear(addr, v)
	up, attached := f.up.(*remote)
	switch {
	case !slices.Contains(f.jury.members, addr):
	case attached && v == voice{up.term, f.before.Name}:
		f.jury.doubts = false
	case !before && (!attached || f.jury.doubts):
		for _, m := range f.jury.members {
			delete(f.rests, place{addr: m})
		}
	}
}

// hearSelf takes the word of this member's own raft.
func (f *finder) hearSelf() {
	self := f.link.cfg.Self
	member := slices.Contains(f.jury.members, self.Addr)
	if f.jury.voices == nil || !member && !f.link.cfg.Votes() {
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
	if up, ok := f.up.(*remote); ok && v == (voice{up.term, f.before.Name}) {
		f.jury.doubts = false // this member may have got its vote since
	}
	if member && f.jury.voices[self.Addr] != v {
		f.note(self.Addr, v)
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
		maps.DeleteFunc(j.voices, func(addr string, _ voice) bool { return !slices.Contains(j.members, addr) })
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
// while there is a rival, and while the leader is in doubt.
func (f *finder) askJury(ctx context.Context, up *remote, later func(time.Time)) {
	f.replaceJury()
	if f.agreedOn(up) && f.rival == nil {
		return
	}
	if !f.jury.doubts && !f.disputed(up) && f.rival == nil {
		return
	}
	for _, addr := range f.jury.members {
		v, told := f.jury.voices[addr]
		if addr == f.heardAt(up) || told && !f.outdated(v, up) {
			continue
		}
		a := &ask{at: place{addr: addr}, juror: true, once: !told, above: up.term, hold: timing.HoldFind(f.link.TTL())}
		if told {
			a.above = v.term
		}
		f.start(ctx, a, later)
	}
}

// outdated reports whether a word may be of before the election of a leader that is in doubt. While that
// leader is silent, the search asks for leaders of its term.
func (f *finder) outdated(v voice, up *remote) bool {
	return f.jury.doubts && (v.term < up.term || v.term == up.term && !up.silent()) && v != voice{up.term, f.before.Name}
}

// endFurther ends the questions for a further word of voters, above the term least or a later one. A voter
// that leads in the term would keep one while this member looks for its leader.
func (f *finder) endFurther(least uint64) {
	for at, a := range f.asks {
		if a.further() && a.above >= least {
			a.cancel()
			delete(f.asks, at)
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
	if lowest > 0 && lowest < f.link.servedTerm() {
		f.link.lowerTerm(lowest)
		f.link.look.Wake() // the questions under way are for leaders above
	}
}

// lowerTerm lowers the highest term to have served this member.
func (k *Link) lowerTerm(term uint64) {
	k.mu.Lock()
	k.term = min(k.term, term)
	k.mu.Unlock()
}
