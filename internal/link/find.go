package link

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of the questions under way.
const (
	maxAsks   = 16 // at a time; the jury is asked beyond them, and an honest one has maxVoters at most
	maxVoters = 9  // voters asked at a time: more than any cluster has
	maxOthers = 3  // members without a vote asked at a time

	maxRests = 512 // places asked in vain that are remembered
)

// A finder decides whom to ask for the leader. Only Run uses a finder.
//
// The finder asks by need:
//
//   - a member with a leader that answers keeps one question at one voter, which
//     answers at the next election: so the news needs no gossip, and an idle
//     member hears of the death of a silent leader too;
//   - a member whose leader answers nothing, or no request for long, asks all voters
//     and stays;
//   - a member without a leader asks, all at once, the leaders told by others, all
//     voters, the leader of before, and after a while a few other members.
//
// Each question has a goroutine and a stream of its own, so that a place which does
// not answer delays no other question. The voters keep the questions until an
// election, so asking costs nothing while there is nothing to hear; the new leader
// is one of the voters asked, and attaches 300 members over streams that stand.
type finder struct {
	link    *Link
	replies chan reply
	wg      sync.WaitGroup

	asks    map[place]*ask
	standby *ask // the one question of a member with a leader
	rests   map[place]rest
	claims  map[string]claim // leaders told by others, by address
	jury    jury
	rival   *rival // nil: none
	bans    map[bannee]ban

	up        upstream          // as installed; nil: none
	served    time.Time         // of the latest attachment
	since     time.Time         // of the loss of the leader
	before    member.Process    // the present leader, or the leader before; no Addr: none
	direct    time.Time         // when a relayed member next dials its leader
	backoff   time.Duration     // between such dials
	claimants []member.Sighting // as of the present look
	living    int               // members, as of the present look

	others      time.Time // when members without a vote are asked next
	othersPause time.Duration
}

// rest is the pause of a place that was asked in vain.
type rest struct {
	until time.Time
	pause time.Duration
}

func newFinder(k *Link) *finder {
	return &finder{
		link: k, replies: make(chan reply), since: time.Now(),
		asks: make(map[place]*ask), rests: make(map[place]rest), claims: make(map[string]claim), bans: make(map[bannee]ban),
	}
}

// stop ends all questions and joins their goroutines.
func (f *finder) stop() {
	f.cancelAll()
	f.dropRival()
	f.wg.Wait()
}

func (f *finder) cancelAll() {
	for _, a := range f.asks {
		a.cancel()
	}
	clear(f.asks)
	if f.standby != nil {
		f.standby.cancel()
		f.standby = nil
	}
}

// refresh has every place asked again without a pause: there is news.
func (f *finder) refresh() {
	clear(f.rests)
	f.others, f.othersPause = time.Time{}, 0
}

// ask begins the questions that are needed now, and returns the time of the next
// look; zero: events alone have news.
func (f *finder) ask(ctx context.Context) (next time.Time) {
	up, ok := f.up.(*remote)
	if f.up != nil && !ok {
		return next // this node leads
	}
	k, now := f.link, time.Now()
	ttl := k.TTL()
	f.claimants, f.living = k.cfg.Claimants()
	f.hearSelf()
	above, lost, search := k.servedTerm(), true, true
	f.forgetAbove(above)
	if up != nil {
		above, lost, search = up.term, up.silent(), up.doubted()
	}
	later := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	start := func(at place, name string, leads bool) bool {
		return f.start(ctx, &ask{at: at, name: name, leads: leads, lost: lost, above: above, hold: timing.HoldFind(ttl)}, later)
	}
	if up != nil && lost {
		f.endFurther(above)
	}
	f.askBusy(up, later)
	if up != nil {
		f.askJury(ctx, up, later) // first: other questions could take its places
	}
	f.hear(above, lost)
	f.tryClaims(start, ttl, later)
	if search {
		for _, addr := range f.voters() {
			// A second stream to a leader that lives is no better, and every session would
			// move there and back, with all that it has not heard, while the leader is busy.
			if addr != f.before.Addr || up == nil || lost || up.via != "" || up.aged() {
				start(place{addr: addr}, "", false)
			}
		}
	}
	if !lost {
		f.endSearch()
	}
	if up != nil {
		f.standBy(ctx, up, above, ttl, later)
		f.goDirect(start, up, later)
		f.goAgain(start, up, later)
		return next
	}
	f.relent(ttl, later)
	// The leader before may have lost the stream alone, or lead again.
	start(place{addr: f.before.Addr}, f.before.Name, true)
	if due := f.since.Add(timing.RelayAfter(ttl)); now.Before(due) && len(f.voters()) > 0 {
		later(due)
	} else {
		f.askOthers(start, later)
	}
	return next
}

// forgetAbove ends the questions for leaders above terms that count no more: a voter would keep
// them beyond the next election.
func (f *finder) forgetAbove(highest uint64) {
	for at, a := range f.asks {
		if a.above > highest {
			a.cancel()
			delete(f.asks, at)
		}
	}
	if f.standby != nil && f.standby.above > highest {
		f.standby.cancel()
		f.standby = nil
	}
}

// start begins a question, and reports whether it did: not if a question is under
// way there, the place rests, or too many questions are under way.
func (f *finder) start(ctx context.Context, a *ask, later func(time.Time)) bool {
	self := f.link.cfg.Self.Addr
	if a.at.addr == "" || a.at.addr == self || a.at.via == self || f.asks[a.at] != nil || len(f.asks) >= maxAsks && !f.inJury(a.at) ||
		f.rival != nil && f.rival.reply.ask.at == a.at {
		return false
	}
	if r, ok := f.rests[a.at]; ok && time.Now().Before(r.until) {
		later(r.until)
		return false
	}
	f.asks[a.at] = a
	f.launch(ctx, a)
	return true
}

// launch runs a question, after a delay by which many members do not dial at one
// moment.
func (f *finder) launch(ctx context.Context, a *ask) {
	k := f.link
	if n := max(f.living, k.attachedMembers()); n > 1 && (n > 16 || f.rival == nil) { // a few make no rush
		a.delay = rand.N(timing.Spread(k.TTL(), n))
	}
	a.known, a.begun = f.isVoter(a.at), time.Now()
	ctx, a.cancel = context.WithCancel(ctx)
	f.wg.Go(func() {
		defer a.cancel()
		a.run(ctx, k, f.replies)
	})
}

// endSearch ends the questions of a search, since the leader answers again.
func (f *finder) endSearch() {
	for at, a := range f.asks {
		if a.lost {
			a.cancel()
			delete(f.asks, at)
		}
	}
}

// askOthers asks a few members that are not known to vote, now and then: one of
// them may know voters that this member does not know. The pause is one for all of
// them, since in a large cluster there is always another to ask.
func (f *finder) askOthers(start func(place, string, bool) bool, later func(time.Time)) {
	if now := time.Now(); now.Before(f.others) {
		later(f.others)
		return
	}
	voters, addrs := f.voters(), f.link.cfg.OtherAddrs()
	for _, m := range f.link.cfg.Members() {
		addrs = append(addrs, m.Addr)
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	running, asked := 0, 0
	for _, a := range f.asks {
		if a.other {
			running++
		}
	}
	for _, addr := range addrs {
		at := place{addr: addr}
		if running+asked < maxOthers && !slices.Contains(voters, addr) && start(at, "", false) {
			f.asks[at].other = true
			asked++
		}
	}
	if asked == 0 {
		return // events have news
	}
	ttl := f.link.TTL()
	f.othersPause = min(max(2*f.othersPause, timing.MostBackoff(ttl)), timing.HoldFind(ttl))
	f.others = time.Now().Add(jitter(f.othersPause))
	later(f.others)
}

// standBy keeps one question at a voter other than the leader.
func (f *finder) standBy(ctx context.Context, up *remote, above uint64, ttl time.Duration, later func(time.Time)) {
	if f.standby != nil {
		return
	}
	now := time.Now()
	voters := f.voters()
	// Until the jury has agreed, its members that were not tried yet go first. Others would let
	// fillers, told by a false leader, keep the question.
	untried := func(addr string) bool {
		_, told := f.jury.voices[addr]
		_, tried := f.rests[place{addr: addr}]
		return !told && !tried && slices.Contains(f.jury.members, addr)
	}
	if !f.agreedOn(up) {
		slices.SortStableFunc(voters, func(a, b string) int { return rank(untried(b)) - rank(untried(a)) })
	}
	for _, addr := range voters {
		at := place{addr: addr}
		if addr == f.heardAt(up) {
			continue
		}
		if r, ok := f.rests[at]; ok && now.Before(r.until) {
			later(r.until)
			continue
		}
		_, told := f.jury.voices[addr]
		f.standby = &ask{at: at, standby: true, once: !told && !f.agreedOn(up) && slices.Contains(f.jury.members, addr), heard: f.jury.voices[addr], above: above, hold: timing.HoldFind(ttl)}
		f.launch(ctx, f.standby)
		return
	}
}

// goDirect dials the leader of a relayed member now and then.
func (f *finder) goDirect(start func(place, string, bool) bool, up *remote, later func(time.Time)) {
	now, at := time.Now(), place{addr: f.before.Addr}
	switch {
	case up.via == "" || f.asks[at] != nil:
	case now.Before(f.direct):
		later(f.direct)
	default:
		delete(f.rests, at)
		start(at, f.before.Name, true)
		f.backoff = min(2*f.backoff, timing.DirectMost)
		f.direct = now.Add(jitter(f.backoff))
		later(f.direct)
	}
}

// take takes the reply to a question. It returns the reply if its upstream is to be
// installed, or nil.
func (f *finder) take(r reply) *reply {
	a, k := r.ask, f.link
	current := f.standby == a || f.asks[a.at] == a
	if f.standby == a {
		f.standby = nil
	} else if f.asks[a.at] == a {
		delete(f.asks, a.at)
	}
	if !current {
		f.discard(&r)
		return nil
	}
	k.learnFrom(r.hint, a.known)
	a.votes = r.hint.Votes
	if a.votes && f.inJury(a.at) && !f.jury.heard.IsZero() {
		f.jury.heard = time.Now()
	}
	f.hearVoter(a, r.hint)
	if r.up != nil && f.better(&r) && !f.isBanned(r.banned()) {
		switch {
		case f.tooSoon(&r):
			f.discard(&r)
			f.restTooSoon(a.at)
			return nil
		case f.challenge(r):
			return nil
		}
		return &r
	}
	f.discard(&r)
	f.failed(a)
	if a.news(r.hint) {
		f.claim(told{member.Process{Name: r.hint.Leader, Addr: r.hint.Addr}, r.hint.Term, cmp.Or(a.at.via, a.at.addr), r.hint.Votes})
	}
	a.juror = a.juror && f.up != nil && !a.news(r.hint)
	if _, told := f.jury.voices[a.at.addr]; !a.once || !told { // else it may be asked for news at once
		f.restAt(a)
	}
	return nil
}

// better reports whether an attached leader should replace the present upstream: an older
// leader, a relayed or ageing stream to the same leader, or a stream on which the leader
// is silent. A leader that answers is left for a leader of a higher term only, or if the
// jury tells another leader of its term.
func (f *finder) better(r *reply) bool {
	up := r.up
	now, ok := f.up.(*remote)
	switch {
	case f.up == nil:
		return up.term >= f.link.servedTerm()
	case !ok:
		return false // this node leads
	case up.term != now.term:
		return up.term > now.term
	}
	if r.name != f.before.Name && !f.jury.elected(r.name, up.term) {
		return now.silent()
	}
	return now.via != "" && up.via == "" || now.silent() || now.aged()
}

// discard leaves the unneeded upstream of a reply, if any. Its leader may be the present leader,
// with the sessions' events routed there: the sessions are attached here again.
func (f *finder) discard(r *reply) {
	if r.up == nil {
		return
	}
	r.up.Quit(nil)
	if now, ok := f.up.(*remote); ok && now.term == r.up.term && f.before.Name == r.name {
		keys, fresh, _ := f.link.keys()
		for _, req := range attachRequests(now.term, keys, fresh, maxShown) {
			_, _ = now.stream.Begin(wire.Attach, wire.Marshal(&req), func(wire.Frame, error) {})
		}
	}
}

// restAt has the place of a question asked again after a pause, longer each time.
// The one question of a member with a leader is in no hurry.
func (f *finder) restAt(a *ask) {
	ttl := f.link.TTL()
	least, most := timing.LeastBackoff, timing.MostBackoff(ttl)
	r := f.rests[a.at]
	switch {
	case a.standby:
		least, most = most, timing.HoldFind(ttl)
	case a.juror && a.votes: // a voter keeps the question until there is a leader
		least, r.pause = most, max(0, a.hold-time.Since(a.begun))/2
		most = a.hold
	case a.juror:
		least, most = most, timing.DirectMost
	case f.dubious(a):
		most = timing.HoldFind(ttl)
	}
	r.pause = min(max(2*r.pause, least), most)
	r.until = time.Now().Add(jitter(r.pause))
	f.rests[a.at] = r
	if len(f.rests) > maxRests {
		maps.DeleteFunc(f.rests, func(_ place, r rest) bool { return time.Now().After(r.until) })
	}
}

// attached notes up as the server of this member, and ends all questions.
func (f *finder) attached(up upstream, leader member.Process) {
	f.cancelAll()
	clear(f.rests)
	clear(f.claims)
	f.up, f.before, f.served = up, leader, time.Now()
	f.backoff = timing.DirectAgain
	f.direct = time.Now().Add(jitter(f.backoff))
}

// left notes the loss of the upstream. The questions under way stay, but for those for a further word:
// their answer is the next leader. Every other place is asked at once, except a leader that has
// ended the stream a moment after the attachment.
func (f *finder) left() {
	f.refresh()
	f.settleJury()
	f.endFurther(0)
	if time.Since(f.served) < timing.MostBackoff(f.link.TTL()) {
		f.restAt(&ask{at: place{addr: f.before.Addr}})
	}
	f.up, f.since = nil, time.Now()
}

// silentTooLong reports whether the leader has answered nothing for so long that
// the leader is left.
func (f *finder) silentTooLong() bool {
	up, ok := f.up.(*remote)
	if !ok {
		return false
	}
	silence, _ := up.silence()
	return silence >= timing.AnswerLimit(f.link.TTL())
}
