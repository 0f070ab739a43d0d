package consensus

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// told answers, in the place of a server, a message without entries that the server has
// acknowledged already, word for word. Raft repeats such a message to each follower some
// fifteen times a second, for as long as nothing is written: nearly all that an idle
// cluster does.
//
// The answer is what the server would say. The server has acknowledged, in this term, that
// its log has the entry named by the message, and it has heard the commit index. It keeps
// both for as long as its process lives. A server of another process, which has to hear the
// commit index anew, has broken the stream of the process before: the next heartbeat fails
// or has a new stream, and in any case the message is sent again after timing.Told.
//
// What raft learns from real messages stays true:
//
//   - Heartbeats are always sent. They keep the followers from standing for election, so an
//     election begins no sooner and no later than before.
//   - Raft takes every answer for a sign of life of the server, and a leader without such
//     signs from a majority steps down after timing.LeaderLease. So nothing is answered
//     here unless the server has really answered within timing.ToldContact: a leader that
//     is cut off steps down later by that time at most. No session depends on it: beats are
//     acknowledged by rounds of their own (package term).
//   - A failed exchange ends it: the next message is sent.
//   - The choice of voters rests on contacts, which count real exchanges alone.
type told struct {
	mu      sync.Mutex
	servers map[raft.ServerID]*toldServer
}

// toldServer is the latest word from a server.
type toldServer struct {
	term, prev, prevTerm, commit uint64    // the message; term 0: none
	last                         uint64    // the server's last entry, by its answer
	at                           time.Time // when the message was sent
	contact                      time.Time // when the latest exchange that succeeded began
}

func newTold() *told { return &told{servers: make(map[raft.ServerID]*toldServer)} }

// note takes the result of an exchange that began at a time.
func (t *told) note(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[id]
	switch {
	case err != nil || !isHeartbeat(args) && !resp.Success || resp.Term > args.Term:
		delete(t.servers, id)
		return
	case s == nil:
		if len(t.servers) >= maxContacts {
			clear(t.servers) // servers of the past take no memory
		}
		s = &toldServer{}
		t.servers[id] = s
	}
	if began.After(s.contact) {
		s.contact = began
	}
	if isHeartbeat(args) {
		return
	}
	if s.term = 0; len(args.Entries) == 0 {
		s.term, s.prev, s.prevTerm, s.commit = args.Term, args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex
		s.last, s.at = resp.LastLog, began
	}
}

// answers fills resp if the server need not be asked.
func (t *told) answers(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) bool {
	if len(args.Entries) > 0 || isHeartbeat(args) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[id]
	if s == nil || s.term == 0 || s.term != args.Term ||
		s.prev != args.PrevLogEntry || s.prevTerm != args.PrevLogTerm || s.commit != args.LeaderCommitIndex {
		return false
	}
	now := time.Now()
	if now.Sub(s.at) >= timing.Told || now.Sub(s.contact) >= timing.ToldContact {
		return false
	}
	resp.RPCHeader, resp.Term, resp.LastLog, resp.Success = args.RPCHeader, args.Term, s.last, true
	return true
}
