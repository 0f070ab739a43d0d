package consensus

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
)

// ahead sends a leader's new entries to the servers before raft does, so that their disks
// work while the leader's disk does. Raft first writes entries to its own store, flush
// included, and then tells its replication of them: a commit would wait for two flushes one
// after the other.
//
// Raft knows nothing of it. Its replication asks for the same entries a moment later, and
// then the answer of the message that was sent ahead is the answer to that call. So raft
// counts an entry as stored here when the own write has returned, and at a server when the
// server has said so, as ever: a commit still has a majority of disks.
//
// Servers may have an entry which its leader loses, because the leader ends before its write
// is on the disk. To the servers that is a leader that wrote the entry and ended at once: the
// entry is committed by the next leader, or replaced, and nobody was told of it. The leader
// cannot put another entry in the place: a process that comes back needs another term to
// lead, and a store whose write failed takes no other (package raftstore). Raft's own proof
// covers it: a leader may write to its disk in parallel with its servers, if it counts itself
// after the flush alone.
//
// A message is sent ahead only if it is the message that raft would send:
//
//   - The entries are commands, of the term in which this member leads now. The
//     replication to the server runs, and the server has acknowledged, in this term, the log
//     up to the entry before.
//   - No exchange of entries with the server is under way. Its result might be a refusal,
//     and a server in the midst of work gains nothing.
//   - An idle stream to the server is there, and the entries are few bytes, for which an
//     idle stream has room: raft's main goroutine, which sends them, waits for no network.
//   - The store flushes its writes. Else there is nothing to overlap, and a server in
//     memory hears of an entry soon enough.
type ahead struct {
	mu      sync.Mutex
	servers map[raft.ServerID]*aheadServer
}

// aheadServer is a server, as the exchanges of entries with it show.
type aheadServer struct {
	busy   int           // exchanges under way, and messages that are being sent ahead
	latest position      // acknowledged
	sent   *aheadMessage // nil: none
}

// position is an entry up to which a server's log is the leader's, and the sender of the
// message that the server answered so.
type position struct {
	header            raft.RPCHeader
	term              uint64 // of the message; 0: no position
	index, indexsTerm uint64
}

// aheadMessage is a message that was sent, and whose answer nobody has read.
type aheadMessage struct {
	args   *raft.AppendEntriesRequest
	stream *dialled
	began  time.Time
}

// maxAhead is the most bytes of entries that are sent ahead: more than the commands of 256
// callers, and less than the buffers of a stream.
const maxAhead = 16 << 10

// begin notes that an exchange of entries with a server begins, and returns the message that
// was sent ahead before, or nil. The caller calls end.
func (a *ahead) begin(id raft.ServerID) *aheadMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.servers[id]
	if s == nil {
		if len(a.servers) >= maxContacts {
			a.forget()
		}
		s = &aheadServer{}
		a.servers[id] = s
	}
	s.busy++
	sent := s.sent
	s.sent = nil
	return sent
}

// forget makes room for another server. The caller holds a.mu.
func (a *ahead) forget() {
	for id, s := range a.servers {
		if s.busy == 0 && s.sent == nil {
			delete(a.servers, id)
		}
	}
}

// end takes the result of the exchange.
func (a *ahead) end(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.servers[id]
	s.busy--
	if err != nil || !resp.Success {
		s.latest = position{}
		return
	}
	s.latest = position{args.RPCHeader, args.Term, args.PrevLogEntry, args.PrevLogTerm}
	if n := len(args.Entries); n > 0 {
		s.latest.index, s.latest.indexsTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	}
}

// take returns the servers whose log is known to end right in front of an entry in the
// entry's term, with the entry before, and marks them busy. The caller calls leave for each.
func (a *ahead) take(first *raft.Log) map[raft.ServerID]position {
	a.mu.Lock()
	defer a.mu.Unlock()
	var free map[raft.ServerID]position
	for id, s := range a.servers {
		if s.busy > 0 || s.sent != nil || s.latest.term != first.Term || s.latest.index+1 != first.Index {
			continue
		}
		if free == nil {
			free = make(map[raft.ServerID]position, len(a.servers))
		}
		s.busy++
		free[id] = s.latest
	}
	return free
}

// leave ends what take began. sent is nil if no message was sent.
func (a *ahead) leave(id raft.ServerID, sent *aheadMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.servers[id]
	s.busy--
	s.sent = sent
}

// abandon drops the streams of the messages whose answers raft will not ask for: the server
// is not this leader's any more, or raft has not asked for timing.RaftIO. The transport's
// end drops the others.
func (t *transport) abandon(now time.Time) {
	for _, c := range t.ahead.abandoned(now, t.reach.serving) {
		t.pool.drop(c)
	}
}

// abandoned forgets the messages that raft will not ask for, and returns their streams.
func (a *ahead) abandoned(now time.Time, serving func(server string, term uint64) bool) (streams []*dialled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range a.servers {
		if m := s.sent; m != nil && (now.Sub(m.began) >= timing.RaftIO || !serving(string(id), m.args.Term)) {
			s.sent = nil
			streams = append(streams, m.stream)
		}
	}
	return streams
}

// answers reports whether the answer to m is an answer to args, which may have more entries.
// An old answer is no sign of life, and raft would take it for one.
func (m *aheadMessage) answers(args *raft.AppendEntriesRequest) bool {
	return args.Term == m.args.Term && args.PrevLogEntry == m.args.PrevLogEntry && args.PrevLogTerm == m.args.PrevLogTerm &&
		len(args.Entries) >= len(m.args.Entries) && time.Since(m.began) < timing.ToldContact
}

// sendAhead sends entries that raft is about to store to the servers that lack nothing else.
func (t *transport) sendAhead(logs []*raft.Log) {
	bytes := 0
	for _, l := range logs {
		if bytes += len(l.Data); bytes > maxAhead || l.Type != raft.LogCommand || l.Term != logs[0].Term {
			return
		}
	}
	if len(logs) == 0 || len(logs) > entriesPerAppend {
		return
	}
	for id, at := range t.ahead.take(logs[0]) {
		t.ahead.leave(id, t.sendAheadTo(id, at, logs))
	}
}

// sendAheadTo sends entries to a server, or returns nil.
func (t *transport) sendAheadTo(id raft.ServerID, at position, logs []*raft.Log) *aheadMessage {
	if !t.reach.serving(string(id), at.term) {
		return nil
	}
	c := t.pool.take(string(id))
	if c == nil {
		return nil
	}
	m := &aheadMessage{stream: c, began: time.Now(), args: &raft.AppendEntriesRequest{
		RPCHeader: at.header, Term: at.term, PrevLogEntry: at.index, PrevLogTerm: at.indexsTerm,
		Entries: slices.Clone(logs), LeaderCommitIndex: t.committed(),
	}}
	if err := t.sendOn(c, m.args); err != nil {
		return nil
	}
	return m
}

// append is an exchange of entries. It returns when the exchange began that had the answer. If the
// answer is about fewer entries, the others are taken off args.
func (t *transport) append(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (began time.Time, err error) {
	sent := t.ahead.begin(id)
	defer func() { t.ahead.end(id, args, resp, err) }()
	if sent != nil {
		sent.stream.conn.SetDeadline(time.Now().Add(timing.RaftIO))
		err := t.receive(sent.stream, id, sent.args, resp)
		if sent.answers(args) {
			args.Entries = args.Entries[:len(sent.args.Entries)]
			return sent.began, err
		}
		*resp = raft.AppendEntriesResponse{} // the answer to another message
	}
	began = time.Now()
	return began, t.exchange(id, args, resp)
}

// log returns the store as raft's log.
func (t *transport) log(store *raftstore.Store) raft.LogStore {
	return sendingLog{t.told.watch(store), store.Flushes(), t}
}

// sendingLog sends entries ahead of their write.
type sendingLog struct {
	raft.LogStore
	flushes bool
	t       *transport
}

// StoreLogs implements raft.LogStore. A leader calls it with its new entries, and a follower
// with its leader's, which are of no term in which this member leads.
func (l sendingLog) StoreLogs(logs []*raft.Log) error {
	if l.flushes && l.t.store.Failed() == nil {
		l.t.sendAhead(logs)
	}
	return l.LogStore.StoreLogs(logs)
}
