package consensus

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// ErrDiskStalled tells that the store has not answered a write for too long.
var ErrDiskStalled = errors.New("cluster: the disk does not answer")

// transport carries raft's messages. It is not raft's own network transport, which
// decodes by reflection and believes every length and every message:
//
//   - Nothing reaches raft but by the judge: see serve.
//   - A stream carries one exchange at a time. Pipelining can deadlock replication
//     while heartbeats look healthy, and gains nothing once commands share entries.
//   - There is no fast path for heartbeats, because the fast path changes the term
//     outside raft's main goroutine and can let logs diverge.
//   - A leader with a stalled disk sends no entries and no heartbeats, so that
//     another leader is elected.
//   - A kept stream that turns out broken costs no call: see again.
//   - Each exchange with another server is noted, for the choice of voters.
//   - A server out of reach does not make raft back off: see reach.
//   - A message that the server has acknowledged is not sent at once again: see told.
//   - A leader's entries are sent while the leader's own disk writes them: see ahead.
//   - A stream that grows old is replaced before it ends: see pool.
type transport struct {
	id        string
	store     *raftstore.Store
	reach     *reach
	contacts  *contacts
	told      *told
	ahead     ahead
	committed func() uint64 // raft's commit index; not called before reach serves
	beats     *heartbeats
	ttl       func() time.Duration // the committed bound of TTLs
	refused   *refused.Log
	stream    *stream
	pool      *pool
	spool     *spool
	rules     judge.Raft // this raft, as the judge sees it
	admitted  *admission
	without   disproved // leaders that this raft does without
	base      base

	encoded []byte                             // id
	decoded atomic.Pointer[raft.ServerAddress] // of the latest message

	consume chan raft.RPC
	done    chan struct{} // closed by Close
	once    sync.Once
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// newTransport returns the transport of r, whose store, fsm, reach and contacts are
// set. dir is for snapshots that arrive; "": in memory.
func newTransport(r *Raft, dir string) *transport {
	t := &transport{id: r.id, encoded: []byte(r.id), store: r.store, reach: r.reach, contacts: r.contacts, told: newTold(r.cfg.Self.Grid), refused: r.cfg.Self.Refused,
		consume: make(chan raft.RPC), done: make(chan struct{}), spool: newSpool(dir, r.table.Check)}
	t.base.store = r.store
	t.ahead.servers = make(map[raft.ServerID]*aheadServer)
	t.committed = func() uint64 { return r.raft.CommitIndex() }
	t.beats, t.ttl = newHeartbeats(t), r.ttl
	t.stream = newStream(r.id, r.cfg.Dial, t.serve)
	t.pool = newPool(t.stream.Dial)
	t.admitted = newAdmission(r)
	t.rules = &judged{r, t.admitted}
	return t
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.consume }

// LocalAddr implements raft.Transport.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.id) }

// EncodePeer implements raft.Transport. Raft encodes its own address for each message and never
// writes to the bytes.
func (t *transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte {
	if string(addr) == t.id {
		return t.encoded
	}
	return []byte(addr)
}

// DecodePeer implements raft.Transport. Raft decodes the leader's address in each message.
func (t *transport) DecodePeer(addr []byte) raft.ServerAddress {
	if last := t.decoded.Load(); last != nil && string(*last) == string(addr) {
		return *last
	}
	peer := raft.ServerAddress(addr)
	t.decoded.Store(&peer)
	return peer
}

// SetHeartbeatHandler leaves the fast path out.
func (*transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline refuses: raft then sends one message after the other.
func (*transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Close implements raft.WithClose: it gives up every exchange, those under way too, and
// no request reaches raft any more. Raft calls Close at the end of its Shutdown, which
// waits for the exchanges under way: see Raft.shutDown.
func (t *transport) Close() error {
	t.once.Do(func() {
		close(t.done)
		t.stream.shut()
		t.pool.close()
		t.admitted.stop()
	})
	return nil
}

// end closes the transport and its streams, and joins its goroutines.
func (t *transport) end() {
	t.Close()
	t.stream.close()
	t.admitted.wait()
	t.beats.wg.Wait()
}

// AppendEntries sends entries or a heartbeat, unless the disk has stalled. A call
// with entries returns an error only when the leader's term is over, when the
// server has left the configuration, or when the server answers and yet fails.
//
// Entries that exceed a message are taken off args. Raft counts the entries of args
// after the call, and sends the rest next.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if laterTerm(args) {
		return errLaterTerm
	}
	if isHeartbeat(args) {
		return t.beats.send(id, args, resp)
	}
	args.Entries = args.Entries[:judge.Fit(args.Entries)]
	send := func() error {
		if t.store.StalledFor() > timing.StoreStalled {
			return ErrDiskStalled
		}
		var began time.Time
		err := again(func() (err error) {
			began, err = t.append(id, args, resp)
			return err
		})
		t.noteExchange(id, args, resp, err)
		t.told.note(id, args, resp, began, err)
		return err
	}
	if t.store.StalledFor() <= timing.StoreStalled && t.told.settle(id, args, resp, t.store.LastIndex, t.reach.serving, t.done) {
		return nil
	}
	return t.reach.keep(string(id), args.Term, send)
}

// errLaterTerm keeps a message of a deposed leader from being sent.
var errLaterTerm = errors.New("consensus: the log has entries of a later term")

// laterTerm says whether args has what its own term cannot know. A leader that has been
// deposed ends its replication a moment later than its term: meanwhile the replication
// may read entries of the next leader from the log, and would send them in the old term.
// No voter accepts such a message, and each would warn of its sender.
func laterTerm(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogTerm > args.Term ||
		slices.ContainsFunc(args.Entries, func(l *raft.Log) bool { return l.Term > args.Term })
}

// noteExchange notes an exchange of entries or a heartbeat.
func (t *transport) noteExchange(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) {
	matched := args.PrevLogEntry + uint64(len(args.Entries))
	switch {
	case err != nil:
		t.contacts.failed(id)
	case resp.Success && matched > 0:
		t.contacts.answered(id, matched, args.LeaderCommitIndex)
	default:
		t.contacts.answered(id, 0, 0)
	}
}

// isHeartbeat reports whether raft sends args by the clock, beside its replication.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// RequestVote asks for a vote.
func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return again(func() error { return t.exchange(id, args, resp) })
}

// RequestPreVote asks whether a vote would be given.
func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return again(func() error { return t.exchange(id, args, resp) })
}

// TimeoutNow has a server stand for election at once.
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.exchange(id, args, resp)
}

// again repeats a call for as long as the call may have failed on a kept stream
// to a process that has restarted since: raft keeps streams without looking at
// them, and a vote lost to a dead stream would lose the election. A failed dial
// and a slow failure show a server out of reach, and are not repeated; nor is an
// answer, which shows a stream that works.
func again(call func() error) error {
	for kept := maxPool; ; kept-- {
		began := time.Now()
		err := call()
		if err == nil || kept == 0 || isFinal(err) || time.Since(began) >= timing.RaftIO/2 {
			return err
		}
	}
}

// isFinal reports whether another stream cannot help.
func isFinal(err error) bool {
	var dial *dialError
	var refused *judge.RefusedError
	var refusal *judge.Refusal
	var doubt judge.Doubt
	return errors.Is(err, errAnswersLate) || errors.As(err, &dial) || errors.As(err, &refused) || errors.As(err, &refusal) || errors.As(err, &doubt)
}

// dialError is the failure of a dial, in contrast to the failure of a kept stream.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// exchange sends a request to a server and judges the answer.
func (t *transport) exchange(id raft.ServerID, request, answer any) error {
	c, err := t.send(id, request)
	if err != nil {
		return err
	}
	return t.receive(c, id, request, answer)
}

// send sends a request to a server. The caller calls receive with the stream.
func (t *transport) send(id raft.ServerID, request any) (*dialled, error) {
	c, err := t.pool.get(string(id))
	if err != nil {
		return nil, err
	}
	if err := t.sendOn(c, request); err != nil {
		return nil, err
	}
	return c, nil
}

// sendOn sends a request on a stream, or gives the stream back.
func (t *transport) sendOn(c *dialled, request any) error {
	c.conn.SetDeadline(time.Now().Add(timing.RaftIO))
	err := c.send(request)
	if err != nil {
		t.pool.put(c, err)
	}
	return err
}

// receive receives the answer on the stream of send, judges the answer, and gives the stream
// back.
func (t *transport) receive(c *dialled, id raft.ServerID, request, answer any) error {
	err := c.receive(answer)
	t.pool.put(c, err)
	return t.judgeAnswer(id, request, answer, err)
}

// judgeAnswer refuses an answer that raft must not see.
func (t *transport) judgeAnswer(id raft.ServerID, request, answer any, err error) error {
	if err != nil {
		return err
	}
	err = judge.JudgeAnswer(t.rules, string(id), request, answer)
	if err == nil {
		return nil
	}
	var doubt judge.Doubt
	if errors.As(err, &doubt) && t.admitted.settle(doubt) {
		err = judge.JudgeAnswer(t.rules, string(id), request, answer)
	}
	if err != nil {
		t.refused.Note(refused.Raft, string(id), err.Error())
	}
	return err
}

// snapshotPart is the part of a snapshot that travels within timing.RaftIO, so
// 128 KiB/s at least.
const snapshotPart = 256 << 10

// snapshotPatience is how long the server of a snapshot may take for its answer after
// the last byte.
func snapshotPatience(size int64) time.Duration {
	return timing.RaftIO * time.Duration(1+size/snapshotPart)
}

// InstallSnapshot sends a snapshot to a server that answers heartbeats. The stream is
// not used again.
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if args.LastLogTerm > args.Term {
		return errLaterTerm
	}
	t.reach.await(string(id), args.Term)
	c, err := t.pool.dialNew(string(id))
	if err != nil {
		return err
	}
	defer t.pool.drop(c)
	c.conn.SetDeadline(time.Now().Add(timing.RaftIO))
	if err := c.send(args); err != nil {
		return err
	}
	for left := args.Size; left > 0; left -= min(left, snapshotPart) {
		c.conn.SetDeadline(time.Now().Add(timing.RaftIO))
		if _, err := io.CopyN(c.conn, data, min(left, snapshotPart)); err != nil {
			if told := c.receive(resp); told != nil {
				return errors.Join(err, told) // the reason of the server, maybe
			}
			return t.judgeAnswer(id, args, resp, nil) // a later term, without reading
		}
	}
	// The server checks, stores and restores the snapshot before it answers.
	c.conn.SetDeadline(time.Now().Add(snapshotPatience(args.Size)))
	return t.judgeAnswer(id, args, resp, c.receive(resp))
}
