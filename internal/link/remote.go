package link

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// remote is the upstream to a leader elsewhere: a stream.
type remote struct {
	stream  *stream.Stream
	term    uint64
	cluster machine.ClusterID // of this member before the dial
	notices notices

	named bool            // see Way
	bound []byte          // binds the proof of the session keys to the stream; nil without TLS
	dir   *wire.DirKey    // of this member's directory; nil: it has none
	via   string          // the relaying voter's address; "": the stream is direct
	renew <-chan struct{} // closed when the stream should be replaced; nil: never

	ttl   func() time.Duration // the cluster's bound
	alarm func()               // has Run look after the leader; must not block

	summary func(s wire.Summary, sent time.Time) // takes an answer; must not block; nil in tests

	mu     sync.Mutex
	open   int       // requests of begin without an answer yet
	since  time.Time // of the last answer, or of the first request without an answer
	sign   time.Time // of the last sign of life, answers included
	probed time.Time // when the leader was asked for a sign of life since then; zero: not
	timer  *time.Timer
	quit   bool
}

// newRemote returns a remote without a stream, which the caller sets.
func newRemote(ttl func() time.Duration, alarm func(), via string) *remote {
	return &remote{ttl: ttl, alarm: alarm, via: via}
}

func (u *remote) Propose(_ *term.Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code)) (place uint64) {
	if _, ok := cmd.(machine.Forget); ok {
		u.showDir()
	}
	buf := wire.Buffer()
	*buf = machine.AppendCommand(*buf, cmd)
	u.asked()
	// Not begin and beginLong: their functions would take memory in each call.
	place, err := u.stream.Begin(wire.Propose, *buf, func(f wire.Frame, err error) {
		u.answered()
		done(outcomeOf(f, err))
	})
	wire.Free(buf)
	if err != nil {
		u.answered()
		done(machine.Outcome{}, wire.CodeNotLeader)
	}
	return place
}

// outcomeOf returns the outcome in the answer to a Propose.
func outcomeOf(f wire.Frame, err error) (o machine.Outcome, code wire.Code) {
	if err != nil {
		return o, wire.CodeUnknown
	}
	switch f.Code {
	case wire.CodeOK:
		if o, err = machine.DecodeOutcome(f.Body); err != nil {
			return o, wire.CodeUnknown
		}
	case wire.CodeDenied:
		o.Value = wire.DeniedReason(f.Body)
	}
	return o, f.Code
}

// TakeBack tells the leader that nobody waits for the request any more. The leader answers
// it all the same.
func (u *remote) TakeBack(_ *term.Subscriber, place uint64) {
	u.stream.Notify(wire.Cancel, wire.Marshal(place))
}

func (u *remote) Beat(_ *term.Subscriber, id machine.SessionID, done func(wire.Code)) {
	sent := time.Now()
	u.begin(wire.Beat, id[:], func(f wire.Frame) {
		if f.Code == wire.CodeOK {
			u.takeSummary(f.Body, sent)
		}
		done(f.Code)
	})
}

func (u *remote) Summarize(done func(wire.Summary, wire.Code)) {
	sent := time.Now()
	u.begin(wire.Summarize, nil, func(f wire.Frame) {
		var s wire.Summary
		if f.Code == wire.CodeOK {
			s = u.takeSummary(f.Body, sent)
		}
		done(s, f.Code)
	})
}

// takeSummary keeps the leader's answer to a question sent at a time. A body that is no
// summary is passed over: nothing but reports depends on it.
func (u *remote) takeSummary(body []byte, sent time.Time) (s wire.Summary) {
	if wire.Unmarshal(body, &s) == nil && u.summary != nil {
		u.summary(s, sent)
	}
	return s
}

// begin sends a request. The answer should come soon: see stalled.
func (u *remote) begin(t wire.Type, body []byte, done func(wire.Frame)) (id uint64) {
	u.asked()
	return u.beginLong(t, body, func(f wire.Frame) {
		u.answered()
		done(f)
	})
}

// asked counts a request whose answer should come soon.
func (u *remote) asked() {
	u.mu.Lock()
	if u.open == 0 {
		u.answeredLocked()
		u.armLocked(timing.Suspect(u.ttl()))
	}
	u.open++
	u.mu.Unlock()
}

// answered counts the answer.
func (u *remote) answered() {
	u.mu.Lock()
	u.open--
	u.answeredLocked()
	u.mu.Unlock()
}

func (u *remote) answeredLocked() {
	u.since = time.Now()
	u.sign, u.probed = u.since, time.Time{}
}

// beginLong sends a request. The answer may take long.
func (u *remote) beginLong(t wire.Type, body []byte, done func(wire.Frame)) (id uint64) {
	id, err := u.stream.Begin(t, body, func(f wire.Frame, err error) {
		if err != nil {
			f.Code = wire.CodeUnknown
		}
		done(f)
	})
	if err != nil {
		done(wire.Frame{Code: wire.CodeNotLeader})
	}
	return id
}

func (u *remote) Read(q replica.Query, done func(replica.Answer, wire.Code)) func() {
	return beginRead(u, wire.Read, &q, q.Version != 0, done)
}

func (u *remote) Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) func() {
	return beginRead(u, wire.Scan, &q, q.Since != 0, done)
}

// beginRead sends a question. If the answer may wait for a change, cancel gives
// the question up.
func beginRead[A any](u *remote, t wire.Type, q any, waits bool, done func(A, wire.Code)) (cancel func()) {
	answered := func(f wire.Frame) {
		var a A
		if f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &a) != nil {
			f.Code = wire.CodeUnknown
		}
		done(a, f.Code)
	}
	if !waits {
		u.begin(t, wire.Marshal(q), answered)
		return func() {}
	}
	return u.giveUp(u.beginLong(t, wire.Marshal(q), answered))
}

// giveUp returns the function that gives a question up, here and at the leader.
func (u *remote) giveUp(id uint64) (cancel func()) {
	return func() {
		u.stream.Forget(id)
		u.stream.Notify(wire.Cancel, wire.Marshal(id))
	}
}

func (u *remote) Granting(done func(wire.Code)) (cancel func()) {
	return u.giveUp(u.beginLong(wire.Ready, nil, func(f wire.Frame) { done(f.Code) }))
}

func (u *remote) Depart(name string, boot uint64, done func(wire.Code)) {
	request := wire.DepartRequest{Name: name, Boot: boot}
	u.beginLong(wire.Depart, wire.Marshal(&request), func(f wire.Frame) { done(f.Code) })
}

// Show sends the keys of sessions to be opened ahead of all later requests. Nobody
// waits for the answer: if the leader refuses the keys, the leader refuses the Open.
func (u *remote) Show(_ *term.Subscriber, fresh ...machine.SessionKey) {
	for _, req := range attachRequests(u.term, nil, fresh, maxShown) {
		u.beginLong(wire.Attach, wire.Marshal(&req), func(wire.Frame) {})
	}
}

// showDir proves ahead of a Forget that this member has its directory. As in Show, nobody
// waits for the answer.
func (u *remote) showDir() {
	req := wire.AttachRequest{Term: u.term, Dir: u.dir.Prove(u.bound)}
	u.beginLong(wire.Attach, wire.Marshal(&req), func(wire.Frame) {})
}

func (u *remote) Detach(_ *term.Subscriber, id machine.SessionID) {
	u.stream.Notify(wire.Detach, id[:])
}

func (u *remote) Done() <-chan struct{} { return u.stream.Stopped() }

func (u *remote) Quit(*term.Subscriber) {
	u.mu.Lock()
	u.quit = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.mu.Unlock()
	u.stream.Close()
}

// silence returns for how long the leader has given no sign of life, and for how
// long the leader has answered none of the open requests.
func (u *remote) silence() (silent, starved time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.silenceLocked(timing.Suspect(u.ttl()))
}

// silenceLocked counts no more than suspect before the question for a sign of life:
// after a pause of this process the leader's answers lie unread.
func (u *remote) silenceLocked(suspect time.Duration) (silent, starved time.Duration) {
	if u.open == 0 {
		return 0, 0
	}
	starved = time.Since(u.since)
	if u.probed.IsZero() {
		return min(time.Since(u.sign), suspect), starved
	}
	return suspect + time.Since(u.probed), starved
}

// silent reports whether the leader has not answered the question for a sign of
// life.
func (u *remote) silent() bool {
	silent, _ := u.silence()
	return silent >= 2*timing.Suspect(u.ttl())
}

// doubted reports whether there may be a better leader: this leader is silent, or
// gives signs of life and answers no request.
func (u *remote) doubted() bool {
	_, starved := u.silence()
	return u.silent() || starved >= timing.AnswerLimit(u.ttl())
}

// armLocked has lookAfter called after d.
func (u *remote) armLocked(d time.Duration) {
	switch {
	case u.quit:
	case u.timer == nil:
		u.timer = time.AfterFunc(d, u.lookAfter)
	default:
		u.timer.Reset(d)
	}
}

// lookAfter runs in the timer while requests are open. After timing.Suspect of
// silence lookAfter asks the leader for a sign of life, so that a leader whose
// answers only take long is never left. After further silence Run is told, and
// asks the voters or leaves: see finder.
func (u *remote) lookAfter() {
	ttl := u.ttl()
	suspect := timing.Suspect(ttl)
	u.mu.Lock()
	silent, starved := u.silenceLocked(suspect)
	open := u.open > 0 && !u.quit
	probe := open && silent >= suspect && u.probed.IsZero()
	if probe {
		u.probed = time.Now()
	}
	if open {
		next := suspect
		for _, due := range []time.Duration{suspect, 2 * suspect, timing.AnswerLimit(ttl)} {
			if due > silent {
				next = due - silent
				break
			}
		}
		u.armLocked(next)
	}
	u.mu.Unlock()
	if probe {
		u.probe()
	}
	if open && (silent >= 2*suspect || starved >= timing.AnswerLimit(ttl)) {
		u.alarm()
	}
}

// probe asks the leader for a sign of life. The leader's stream answers at once,
// however busy its raft and its disk are. A refusal for want of room is a sign, too.
func (u *remote) probe() {
	u.beginLong(wire.Find, wire.Marshal(&wire.FindRequest{}), func(f wire.Frame) {
		if f.Code != wire.CodeOK && f.Code != wire.CodeBusy {
			return
		}
		u.mu.Lock()
		u.sign, u.probed = time.Now(), time.Time{}
		u.mu.Unlock()
	})
}
