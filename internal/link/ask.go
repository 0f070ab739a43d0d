package link

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// place is an address at which the leader may be, reached directly or through a
// voter that relays.
type place struct {
	addr string
	via  string // the relaying voter's address; "": directly
}

// direct returns the address of a place that is reached directly, or "": a relay can answer for any address.
func (at place) direct() string {
	if at.via != "" {
		return ""
	}
	return at.addr
}

// ask is a question under way to a place, on a goroutine and a stream of its own.
type ask struct {
	at      place
	name    string    // of the member expected at the place; "" is any
	leads   bool      // the place is believed to lead: attach before anything else
	standby bool      // stay in question for as long as there is no news
	once    bool      // ask for the leader that the place knows, whatever its term: a voice of the jury
	juror   bool      // the place is asked as one of the jury
	lost    bool      // the leader of term above is out of reach
	other   bool      // the place is not known to vote; the finder's alone
	known   bool      // the place is that of a voter that this member knows
	votes   bool      // the place has answered as a voter; the finder's alone
	heard   voice     // what the place has told the jury before
	above   uint64    // only a leader above this term is news
	begun   time.Time // when it was last put
	delay   time.Duration
	hold    time.Duration // how long the place may keep the question
	cancel  context.CancelFunc
}

// reply is the end of an ask.
type reply struct {
	ask    *ask
	up     *remote // attached; nil: not
	name   string  // of the member at the place; "" if the place was not reached
	voter  bool    // the stream proves that the member has the voter role
	attach wire.AttachAnswer
	claims uint64 // of the Link, the keys of which were shown to the place
	hint   wire.Hint
}

// leader names the member at the place that was asked.
func (r *reply) leader() member.Process { return member.Process{Name: r.name, Addr: r.ask.at.addr} }

// run asks, and delivers the reply to the finder unless ctx ends first. The
// stream of an undelivered reply is closed.
func (a *ask) run(ctx context.Context, k *Link, replies chan<- reply) {
	r := reply{ask: a}
	k.put(ctx, &r)
	select {
	case replies <- r:
	case <-ctx.Done():
		if r.up != nil {
			r.up.Quit(nil)
		}
	}
}

// put dials the place, and asks for the leader and for an attachment.
func (k *Link) put(ctx context.Context, r *reply) {
	a := r.ask
	if !pause(ctx, a.delay) {
		return
	}
	dialling, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	cluster := k.cfg.Cluster() // before the connection, which ends when the member leaves
	way, err := k.cfg.Dial(dialling, member.Process{Name: a.name, Addr: a.at.addr}, a.at.via)
	if err != nil {
		return
	}
	r.name, r.voter = way.Name, way.Voter
	up := newRemote(k.TTL, k.look.Wake, a.at.via)
	up.summary = func(s wire.Summary, sent time.Time) { k.takeSummary(up, s, sent) }
	up.named, up.renew, up.cluster, up.bound, up.dir = way.Named, way.Renew, cluster, way.Bound, k.cfg.Dir
	up.stream = stream.New(way.Conn, func(q *stream.Request) { k.handle(up, q) })
	up.stream.Start()
	if k.negotiate(ctx, r, up) {
		up.term, r.up = r.attach.Term, up
		return
	}
	up.Quit(nil)
}

// negotiate attaches if the place leads, at once or after the place has been
// elected. Otherwise r.hint is the place's news.
func (k *Link) negotiate(ctx context.Context, r *reply, up *remote) bool {
	a := r.ask
	if a.leads {
		attached, unreachable := k.attach(ctx, r, up)
		if attached || unreachable || a.news(r.hint) {
			return attached
		}
	}
	for {
		asked := time.Now()
		if !k.inquire(ctx, r, up.stream) {
			return false
		}
		if r.hint.Leader != "" && r.hint.Leader == r.name && r.hint.Addr != k.cfg.Self.Addr && (!a.further() || a.news(r.hint)) {
			attached, _ := k.attach(ctx, r, up)
			return attached
		}
		if a.news(r.hint) || !a.standby || a.once || !r.hint.Votes || time.Since(asked) < a.hold/2 {
			return false
		}
		if v := (voice{r.hint.Term, r.hint.Leader}); v.leader != "" && v != a.heard {
			return false // a voice for the jury
		}
		k.learnFrom(r.hint, a.known)
	}
}

// news reports whether h names a leader worth an attempt.
func (a *ask) news(h wire.Hint) bool {
	return h.Leader != "" && (h.Term > a.above || a.lost && h.Term == a.above)
}

// further reports whether a voter of the jury is asked for its next word.
func (a *ask) further() bool { return a.juror && !a.once }

// inquire asks where the leader is, and reports whether a readable answer came.
func (k *Link) inquire(ctx context.Context, r *reply, s *stream.Stream) bool {
	a := r.ask
	ctx, cancel := context.WithTimeout(ctx, a.hold+timing.Dial)
	defer cancel()
	req := wire.FindRequest{Above: a.above, Wait: uint64(a.hold / time.Millisecond), Lost: a.lost}
	if a.once {
		req.Above = 0
	}
	f, err := s.Call(ctx, wire.Find, wire.Marshal(&req))
	if err != nil || f.Code != wire.CodeOK {
		return false
	}
	h, ok := readHint(f.Body)
	if !ok {
		return false
	}
	h.Votes = h.Votes && r.voter
	r.hint = h
	return true
}

// attach asks the peer to serve this member and to route the events of every
// attached session here, and shows the sessions' keys. After a refusal r.hint is the
// peer's. Unreachable means that no answer came.
//
// Only a member with the voter role can lead: nobody else is asked.
func (k *Link) attach(ctx context.Context, r *reply, up *remote) (attached, unreachable bool) {
	if !r.voter {
		return false, false
	}
	keys, fresh, claims := k.keys()
	r.claims = claims
	term := k.servedTerm()
	most := wire.MaxAttach
	if k.showFew.Load() {
		most = maxShown
	}
	requests := attachRequests(term, keys, fresh, most)
	for i := 0; i < len(requests); i++ {
		if i == 0 {
			requests[0].Proof = k.cfg.Signer.Prove(up.bound)
		}
		f, err := k.show(ctx, up, &requests[i], i > 0 && len(requests[i].Keys) > 0)
		many := len(requests[i].Keys)+len(requests[i].New) > maxShown
		if err != nil {
			if many { // it may wait at the leader behind those of others
				k.showFew.Store(true)
			}
			return false, true
		}
		if f.Code == wire.CodeBusy && many {
			requests, i = attachRequests(term, keys, fresh, maxShown), -1
			continue
		}
		if f.Code == wire.CodeBusy && i > 0 && len(requests[i].Keys) == 0 {
			break // keys of sessions to be opened alone are left, and an Open shows its key once more
		}
		if f.Code == wire.CodeNotLeader {
			r.hint, _ = readHint(f.Body)
		}
		if f.Code != wire.CodeOK || wire.Unmarshal(f.Body, &r.attach) != nil || r.attach.TTL > machine.MaxTTL {
			return false, false
		}
		r.attach.Voters = firstAddrs(r.attach.Voters)
	}
	k.showFew.Store(false)
	return true, false
}

// show shows keys, and again while the leader is busy, if it has served the stream before:
// then events of the sessions shown before were not on their way yet.
func (k *Link) show(ctx context.Context, up *remote, req *wire.AttachRequest, again bool) (wire.Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	body := wire.Marshal(req)
	for {
		f, err := up.attach(ctx, body)
		if err != nil || !again || f.Code != wire.CodeBusy || !pause(ctx, jitter(timing.LeastBackoff)) {
			return f, err
		}
	}
}

// pause waits for d and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
