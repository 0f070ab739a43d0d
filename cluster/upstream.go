package cluster

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// upstream is the way to the leader: the leader itself if this node leads, or
// a stream to it. No method blocks, and every done is called once: with
// CodeOK, with a verdict, with CodeNotLeader if surely nothing happened, or
// with CodeUnknown.
type upstream interface {
	propose(cmd machine.Command, done func(machine.Outcome, wire.Code))
	beat(id machine.SessionID, done func(wire.Code))
	read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func())
	scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func())
	granting(done func(wire.Code))
	depart(name string, boot uint64, done func(wire.Code))
	detach(id machine.SessionID)
	gone() <-chan struct{}
	stalled(now time.Time) bool
	close()
}

// local is the upstream of a node that leads.
type local struct {
	l *leader
	m *member
}

func (u local) propose(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	id, ok := clientCommand(cmd)
	if !ok {
		done(machine.Outcome{}, wire.CodeBad)
		return
	}
	u.l.bind(u.m, id)
	u.l.propose(cmd, done)
}

func (u local) beat(id machine.SessionID, done func(wire.Code)) {
	u.l.bind(u.m, id)
	u.l.keeper.beat(id, done)
}

func (u local) read(q replica.Query, done func(replica.Answer, wire.Code)) func() {
	return u.l.read(q, done)
}

func (u local) scan(q replica.Scan, done func(replica.Scanned, wire.Code)) func() {
	return u.l.scan(q, done)
}

func (u local) granting(done func(wire.Code)) { u.l.granting(done) }
func (u local) depart(name string, boot uint64, done func(wire.Code)) {
	u.l.depart(name, boot, done)
}
func (u local) detach(id machine.SessionID) { u.l.detach(id) }
func (u local) gone() <-chan struct{}       { return u.l.ctx.Done() }
func (u local) stalled(time.Time) bool      { return false }
func (u local) close()                      { u.l.quit(u.m) }

// remote is the upstream of every other node.
type remote struct {
	rpc  *rpc
	term uint64

	mu    sync.Mutex
	open  int       // requests that should be answered soon
	since time.Time // of the last answer, or of the first such request
}

// A leader that answers nothing for so long is looked for elsewhere.
const answerLimit = 3 * time.Second

func (u *remote) propose(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	u.begin(wire.Propose, machine.EncodeCommand(cmd), func(f wire.Frame) {
		var o machine.Outcome
		if f.Code == wire.CodeOK {
			var err error
			if o, err = machine.DecodeOutcome(f.Body); err != nil {
				f.Code = wire.CodeUnknown
			}
		}
		done(o, f.Code)
	})
}

func (u *remote) beat(id machine.SessionID, done func(wire.Code)) {
	u.begin(wire.Beat, id[:], func(f wire.Frame) { done(f.Code) })
}

// begin sends a request that should be answered soon.
func (u *remote) begin(t wire.Type, body []byte, done func(wire.Frame)) {
	u.mu.Lock()
	if u.open == 0 {
		u.since = time.Now()
	}
	u.open++
	u.mu.Unlock()
	u.beginWaiting(t, body, func(f wire.Frame) {
		u.mu.Lock()
		u.open--
		u.since = time.Now()
		u.mu.Unlock()
		done(f)
	})
}

// beginWaiting sends a request that may wait long for its answer.
func (u *remote) beginWaiting(t wire.Type, body []byte, done func(wire.Frame)) uint64 {
	id, err := u.rpc.begin(t, body, func(f wire.Frame, err error) {
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

func (u *remote) read(q replica.Query, done func(replica.Answer, wire.Code)) func() {
	return u.ask(wire.Read, wire.Marshal((*wire.Query)(&q)), q.Version != 0, func(f wire.Frame) {
		var a wire.Answer
		if f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &a) != nil {
			f.Code = wire.CodeUnknown
		}
		done(answerFromWire(a), f.Code)
	})
}

func (u *remote) scan(q replica.Scan, done func(replica.Scanned, wire.Code)) func() {
	return u.ask(wire.Scan, wire.Marshal((*wire.ScanQuery)(&q)), q.Since != 0, func(f wire.Frame) {
		var a wire.Scanned
		if f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &a) != nil {
			f.Code = wire.CodeUnknown
		}
		done(replica.Scanned(a), f.Code)
	})
}

// ask sends a question whose answer may wait for a change. The returned function
// gives up.
func (u *remote) ask(t wire.Type, body []byte, waits bool, done func(wire.Frame)) (cancel func()) {
	if !waits {
		u.begin(t, body, done)
		return func() {}
	}
	id := u.beginWaiting(t, body, done)
	return func() {
		u.rpc.forget(id)
		u.rpc.notify(wire.Cancel, wire.Marshal(id))
	}
}

func (u *remote) granting(done func(wire.Code)) {
	u.beginWaiting(wire.Ready, nil, func(f wire.Frame) { done(f.Code) })
}

func (u *remote) depart(name string, boot uint64, done func(wire.Code)) {
	u.beginWaiting(wire.Depart, wire.Marshal(&wire.DepartRequest{Name: name, Boot: boot}), func(f wire.Frame) { done(f.Code) })
}

func (u *remote) detach(id machine.SessionID) { u.rpc.notify(wire.Detach, id[:]) }
func (u *remote) gone() <-chan struct{}       { return u.rpc.stopped }
func (u *remote) close()                      { u.rpc.close() }

func (u *remote) stalled(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open > 0 && now.Sub(u.since) > answerLimit
}
