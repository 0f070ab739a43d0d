package consensus

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// receiveBuffer is the read buffer of an accepted stream. What is larger goes to its frame
// directly; thousands of idle streams cost little.
const receiveBuffer = 8 << 10

var errNotTaken = errors.New("raft takes no request")

// tooMuch is told of a frame for which there was no room, or that gave way to another one.
const tooMuch = "too many bytes of raft's messages under way"

// frames has buffers for frames of up to judge.Unasked bytes: a stream keeps none between two
// requests.
var frames = sync.Pool{New: func() any { return new([]byte) }}

// serve answers the requests of an accepted stream, one after the other, until the
// stream ends. A request that does not decode ends the stream, since nobody knows
// where the next request begins. A request that the judge refuses is answered with
// the reason, and the stream goes on: a sender that was refused for a reason that
// passes, as a leader that is not confirmed yet, tries again on the same stream.
func (t *transport) serve(conn net.Conn, from judge.Sender) {
	in := &incoming{t: t, conn: conn, from: from, buf: bufio.NewReaderSize(conn, receiveBuffer)}
	answers := make(chan raft.RPCResponse, 1)
	late := time.NewTimer(timing.RaftIO) // one timer for all requests of the stream
	late.Stop()
	for t.serveOne(in, answers, late) {
	}
}

// serveOne answers the next request of a stream, and reports false if it was the last.
func (t *transport) serveOne(in *incoming, answers chan raft.RPCResponse, late *time.Timer) (more bool) {
	// No deadline for the first byte: some streams carry elections only.
	in.conn.SetReadDeadline(time.Time{})
	if _, err := in.buf.Peek(1); err != nil {
		return false
	}
	in.conn.SetReadDeadline(time.Now().Add(timing.RaftIO))
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	defer in.done()
	frame, err := judge.ReadRequest(in, *buf, in.room)
	if err != nil {
		if in.held.Over() {
			budget.Of(in.conn).Refused(tooMuch)
		}
		t.noteUnread(in.from, err)
		return false
	}
	in.held.Complete()
	if cap(frame) <= judge.Unasked {
		*buf = frame
	}
	request, err := judge.DecodeRequest(frame)
	if err != nil {
		t.refused.Note(refused.Raft, in.from.Name, err.Error())
		return false
	}
	answer, err, last := t.handle(in, request, answers, late)
	if errors.Is(err, raft.ErrTransportShutdown) {
		return false
	}
	out := judge.AppendAnswer(in.out[:0], answer, err)
	in.out = out
	in.conn.SetWriteDeadline(time.Now().Add(timing.RaftIO))
	_, err = in.conn.Write(out)
	return err == nil && !last
}

// incoming reads the requests of an accepted stream. A frame above judge.Unasked has its part
// of the node's budget from then on until it is answered; the peer waits for the part, for
// as long as it waits for an answer.
type incoming struct {
	t    *transport
	conn net.Conn
	from judge.Sender
	buf  *bufio.Reader
	out  []byte       // the latest answer
	held *budget.Hold // of the budget, for the present frame
}

// Read reads bytes of a frame, or of the snapshot behind it.
func (in *incoming) Read(b []byte) (int, error) {
	n, err := in.buf.Read(b)
	in.held.Came(n)
	return n, err
}

// room waits for the part of a frame of n bytes.
func (in *incoming) room(n int) error {
	ctx, cancel := context.WithTimeout(in.t.stream.open, timing.RaftIO)
	defer cancel()
	share := budget.Of(in.conn)
	held, ok := share.TakeEntries(n, in.t.knows(in.from.Name), ctx.Done(), func() { in.conn.SetReadDeadline(time.Unix(1, 0)) })
	if !ok {
		if in.t.stream.open.Err() == nil {
			share.Refused(tooMuch)
		}
		return os.ErrDeadlineExceeded
	}
	in.held = held
	in.conn.SetReadDeadline(time.Now().Add(timing.RaftIO))
	if held.Over() { // the deadline of the budget may have come before
		return os.ErrDeadlineExceeded
	}
	return nil
}

// done gives the part of the latest frame back.
func (in *incoming) done() {
	in.held.Give()
	in.held = nil
}

// knows reports whether a voter here is of the member's name, or the leader that this raft
// follows: a newcomer has no configuration.
func (t *transport) knows(name string) bool {
	_, leader := t.rules.Standing()
	return slices.ContainsFunc(append(t.voters(), leader), func(id string) bool {
		voter, _, _ := member.ParseRaftID(id)
		return voter == name
	})
}

// noteUnread notes a frame that claims too much. A stream that ends in the middle of
// a frame is no news: its process has ended, or the sender has given up.
func (t *transport) noteUnread(from judge.Sender, err error) {
	var netErr net.Error
	if err != io.ErrUnexpectedEOF && !errors.As(err, &netErr) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		t.refused.Note(refused.Raft, from.Name, err.Error())
	}
}

// handle brings a request to raft, if the judge lets the request pass, and waits for
// raft's answer. last is true if nothing can follow on the stream. late is a stopped timer, and is
// stopped after the call.
func (t *transport) handle(in *incoming, request any, answers chan raft.RPCResponse, late *time.Timer) (answer any, err error, last bool) {
	from := in.from
	rpc := raft.RPC{Command: request, RespChan: answers}
	snapshot, last := request.(*raft.InstallSnapshotRequest)
	if err := t.judge(from, request); err != nil {
		return nil, err, last
	}
	patience := timing.RaftIO
	if last {
		// A leader of the past learns the term from the answer, and its snapshot stays
		// unread: raft would read the snapshot to the end.
		if term, _ := t.rules.Standing(); snapshot.Term < term {
			return &raft.InstallSnapshotResponse{Term: term}, nil, true
		}
		patience = snapshotPatience(snapshot.Size)
		stored, err := t.spool.receive(in.conn, in, snapshot)
		if err != nil {
			t.refused.Note(refused.Raft, from.Name, err.Error())
			return nil, err, true
		}
		defer stored.remove()
		// The snapshot took its time, and raft has gone on.
		if err := t.judge(from, request); err != nil {
			return nil, err, true
		}
		rpc.Reader = stored.reader()
	}
	// The sender waits for so long, and comes again on another stream. While the disk
	// hangs, raft takes no request, and requests without a sender would pile up.
	late.Reset(patience)
	defer late.Stop()
	select {
	case t.consume <- rpc:
	case <-late.C:
		return nil, errNotTaken, true
	case <-t.done:
		return nil, raft.ErrTransportShutdown, true
	}
	select {
	case a := <-answers:
		if yes, ok := a.Response.(*raft.InstallSnapshotResponse); ok && yes.Success {
			t.base.set(snapshot.LastLogIndex, snapshot.LastLogTerm)
		}
		return a.Response, a.Error, last
	case <-t.done:
		return nil, raft.ErrTransportShutdown, true
	}
}

// judge returns nil if raft may see the request. A doubt about the sender is put to
// other voters first; for timing.Follows the request waits for their word.
func (t *transport) judge(from judge.Sender, request any) error {
	err := judge.Judge(t.rules, from, request)
	if err == nil {
		return nil
	}
	var doubt judge.Doubt
	if errors.As(err, &doubt) && t.admitted.settle(doubt) {
		err = judge.Judge(t.rules, from, request)
	}
	if m, ok := request.(*raft.AppendEntriesRequest); ok {
		t.without.note(m, err, t.voters)
	}
	if err != nil && (!errors.As(err, &doubt) || t.admitted.lasts(doubt)) {
		t.refused.Note(refused.Raft, from.Name, err.Error())
	}
	return err
}

// voters returns the voters of the latest and of the committed configuration here.
func (t *transport) voters() (ids []string) {
	for _, c := range []raft.Configuration{t.rules.Latest(), t.rules.Committed()} {
		for _, s := range c.Servers {
			if s.Suffrage == raft.Voter {
				ids = append(ids, string(s.ID))
			}
		}
	}
	return ids
}

// judged shows this raft to the judge.
type judged struct {
	*Raft
	admitted *admission
}

// Standing reads the term and the leader of one moment. Raft forgets its leader
// before it changes the term and learns the next one after.
func (j *judged) Standing() (term uint64, leader string) {
	for {
		term = j.raft.CurrentTerm()
		_, id := j.raft.LeaderWithID()
		if j.raft.CurrentTerm() == term {
			return term, string(id)
		}
	}
}

// CommitIndex includes the applied entries. Raft itself learns the commit index from
// the next entries: after a start, and after a snapshot, the table is ahead.
func (j *judged) CommitIndex() uint64 { return max(j.raft.CommitIndex(), j.raft.AppliedIndex()) }

func (j *judged) Latest() raft.Configuration {
	f := j.raft.GetConfiguration()
	if f.Error() != nil {
		return raft.Configuration{}
	}
	return f.Configuration()
}

func (j *judged) Committed() raft.Configuration {
	c, _ := j.fsm.configuration()
	return c
}

func (j *judged) TermAt(index uint64) (uint64, bool) {
	var l raft.Log
	if err := j.store.GetLog(index, &l); err != nil {
		return 0, false
	}
	return l.Term, true
}

func (j *judged) Base() (index, term uint64) { return j.trans.base.get() }

func (j *judged) Confirmed(d judge.Doubt) bool { return j.admitted.confirmed(d) }

func (j *judged) Disproved(leader string, term uint64) bool { return j.trans.without.is(leader, term) }
