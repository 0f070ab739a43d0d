package consensus

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
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
// While the server has acknowledged the whole log, and all of the log is committed, the
// answer waits until there is news or the message is due again: see settle. Raft asks
// again after each answer, and each of its timers wakes the process for nothing.
//
// What raft learns from real messages stays true:
//
//   - Heartbeats keep the followers from standing for election, and go a way of their own:
//     see heartbeats.
//   - Raft takes every answer for a sign of life of the server, and a leader without such
//     signs from a majority steps down after timing.LeaderLease. So nothing is answered
//     here unless the server has really answered within timing.ToldContact. A leader that
//     is cut off steps down later by that time at most, and only if it writes in that time.
//     Neither a session nor an entry depends on the moment: beats are acknowledged by
//     rounds of their own (package term), and entries are committed by a majority.
//   - A failed exchange ends it: the next message is sent.
//   - The choice of voters rests on contacts, which count real exchanges alone.
type told struct {
	news wakeup.All   // an entry was stored, an exchange failed, or raft's state changed
	grid *timing.Grid // a message is due at a moment of the grid, with the messages to the others

	mu      sync.Mutex
	servers map[raft.ServerID]*toldServer
}

// toldServer is the latest word from a server.
type toldServer struct {
	term, prev, prevTerm, commit uint64    // the message; term 0: none
	last                         uint64    // the server's last entry, by its answer
	at                           time.Time // when the message was sent
	contact                      time.Time // when the latest exchange that succeeded began
	contactTerm                  uint64    // of that exchange
}

func newTold(grid *timing.Grid) *told {
	return &told{grid: grid, servers: make(map[raft.ServerID]*toldServer)}
}

// note takes the result of an exchange that began at a time.
func (t *told) note(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[id]
	switch {
	case err != nil || !isHeartbeat(args) && !resp.Success || resp.Term > args.Term:
		delete(t.servers, id)
		t.news.Wake()
		return
	case s == nil:
		if len(t.servers) >= maxContacts {
			clear(t.servers) // servers of the past take no memory
		}
		s = &toldServer{}
		t.servers[id] = s
	}
	if began.After(s.contact) {
		s.contact, s.contactTerm = began, args.Term
	}
	if isHeartbeat(args) {
		return
	}
	if s.term = 0; len(args.Entries) == 0 {
		s.term, s.prev, s.prevTerm, s.commit = args.Term, args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex
		s.last, s.at = resp.LastLog, began
	}
}

// settle fills resp and returns true if the server need not be asked. Before, settle waits
// for as long as there is nothing to tell the server: until an entry is stored, an exchange
// with the server fails, raft's state changes, the message is due again, or done is closed.
// Raft sends the heartbeats of a term for as long as its replication to the server runs, so
// a leader that steps down must not wait here. The entry that removes the server is stored
// here too. last returns
// the index of the newest entry stored here; serves reports whether this node leads in the
// term and replicates to the server.
func (t *told) settle(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
	last func() (uint64, error), serves func(string, uint64) bool, done <-chan struct{}) bool {
	for {
		news := t.news.Wait() // first: news from here on is not missed
		again, ok := t.answers(id, args, resp)
		if !ok {
			return false
		}
		// Raft asks in the order of its log. An entry stored since raft wrote the message
		// has its trigger behind this call, and an entry that is not committed may be
		// committed by the answer of another server.
		if newest, err := last(); err != nil || newest != args.PrevLogEntry || args.LeaderCommitIndex != newest || !serves(string(id), args.Term) {
			return true
		}
		due := time.NewTimer(t.grid.Within(time.Now(), again, timing.Attend))
		select {
		case <-news:
		case <-due.C:
			return !serves(string(id), args.Term) // a deposed leader has nothing to say
		case <-done:
			return false
		}
		due.Stop()
	}
}

// answers fills resp if the server need not be asked before again has passed.
func (t *told) answers(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (again time.Duration, ok bool) {
	if len(args.Entries) > 0 || isHeartbeat(args) {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[id]
	if s == nil || s.term == 0 || s.term != args.Term ||
		s.prev != args.PrevLogEntry || s.prevTerm != args.PrevLogTerm || s.commit != args.LeaderCommitIndex {
		return 0, false
	}
	now := time.Now()
	again = timing.Told - now.Sub(s.at)
	if again <= 0 || now.Sub(s.contact) >= timing.ToldContact {
		return 0, false
	}
	resp.RPCHeader, resp.Term, resp.LastLog, resp.Success = args.RPCHeader, args.Term, s.last, true
	return again, true
}

// heard fills resp and returns true if an exchange with the server in the term of args began
// no longer ago than limit and succeeded, and none has failed since.
func (t *told) heard(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[id]
	if s == nil || s.contactTerm != args.Term || time.Since(s.contact) > limit {
		return false
	}
	resp.RPCHeader, resp.Term, resp.LastLog, resp.Success = args.RPCHeader, args.Term, s.last, true
	return true
}

// contact returns when the latest exchange with the server began that succeeded in the term.
// The time is zero if there is none, or if an exchange has failed since.
func (t *told) contact(id raft.ServerID, term uint64) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.servers[id]; s != nil && s.contactTerm == term {
		return s.contact
	}
	return time.Time{}
}

// watch returns the store as raft's log, which ends the waits of settle with each entry.
func (t *told) watch(store *raftstore.Store) raft.LogStore { return toldLog{store, t} }

// toldLog tells of an entry as soon as it is stored. Raft tells its replication later.
type toldLog struct {
	*raftstore.Store
	told *told
}

// StoreLogs implements raft.LogStore.
func (l toldLog) StoreLogs(logs []*raft.Log) error {
	err := l.Store.StoreLogs(logs)
	l.told.news.Wake()
	return err
}
