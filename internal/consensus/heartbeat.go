package consensus

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// heartbeats sends a leader's heartbeats. Raft asks for a heartbeat to each server at every
// moment of the member's grid, timing.Attend apart: see Raft.pulse. At most of these moments
// nothing is sent:
//
//   - At a TTL of 10 s and more, every second moment is enough for the followers. At the other
//     moments the heartbeat is answered in the server's place. Raft then never believes a server to be silent for
//     longer than timing.Attend while the server answers. So a leader whose own process
//     stands still for timing.LeaderLease less timing.Attend goes on leading.
//   - A heartbeat that gets no answer is answered in the server's place once, when the
//     server's last real answer is timing.LeaseMore old. The exchange goes on meanwhile, and
//     the next heartbeat waits for its result.
//
// By the second rule the lease follows the committed bound of TTLs, although raft's own lease
// is fixed: a leader that hears nothing steps down LeaderLease + LeaseMore after the last
// real exchange with a majority began, a little less than one election timeout. The followers
// heard the leader no earlier than that exchange began, and wait for a whole timeout. So the
// leader steps down before its followers elect the next leader, as with a fixed lease, and
// bears about the longest silence that leaves this order intact: 725 ms of a timeout of 1 s,
// since the last heartbeat before the silence is 225 ms old at most. At the shortest timeout
// nothing is left to extend, and a leader bears 400 ms.
//
// No promise rests on the lease. An entry needs a majority, and a beat of a session needs a
// round of the voters that began after the beat came (package term), so a leader that is
// cut off confirms nothing, however long it leads. The lease only spares the members of the
// cut-off part a wait.
//
// Each server that fails, by a reset connection for example, has no word left in told, and
// nothing is answered in its place.
type heartbeats struct {
	t  *transport
	wg sync.WaitGroup // exchanges that go on after their heartbeat was answered

	mu   sync.Mutex
	late map[raft.ServerID]*lateHeartbeat
}

// lateHeartbeat is an exchange that goes on after its heartbeat was answered.
type lateHeartbeat struct {
	term uint64
	done chan struct{} // closed when resp and err are set
	resp raft.AppendEntriesResponse
	err  error
}

func newHeartbeats(t *transport) *heartbeats {
	return &heartbeats{t: t, late: make(map[raft.ServerID]*lateHeartbeat)}
}

// send sends a heartbeat, or answers in the place of the server.
func (h *heartbeats) send(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	t := h.t
	if t.store.StalledFor() > timing.StoreStalled {
		return ErrDiskStalled
	}
	ttl := t.ttl()
	if t.told.heard(id, args, resp, timing.HeartbeatRest(ttl)) {
		return nil
	}
	if late := h.take(id, args.Term); late != nil {
		select {
		case <-late.done:
			if late.err != nil {
				return late.err
			}
		default:
			<-late.done
			*resp = late.resp
			return late.err
		}
	}
	began := time.Now()
	err := again(func() error { return h.exchange(id, args, resp, timing.LeaseMore(ttl)) })
	if errors.Is(err, errAnswersLate) {
		return nil
	}
	h.note(id, args, resp, began, err)
	return err
}

// note notes the end of an exchange.
func (h *heartbeats) note(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, began time.Time, err error) {
	h.t.noteExchange(id, args, resp, err)
	h.t.told.note(id, args, resp, began, err)
	h.t.reach.note(string(id), err == nil)
}

// errAnswersLate tells that a heartbeat was answered in the place of the server, and that the
// exchange goes on.
var errAnswersLate = errors.New("consensus: the server's answer is late")

// exchange sends a heartbeat and waits for the answer. It returns errAnswersLate when the
// server's last real answer is more old.
func (h *heartbeats) exchange(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, more time.Duration) error {
	began := time.Now()
	c, err := h.t.send(id, args)
	if err != nil {
		return err
	}
	if until := h.t.told.contact(id, args.Term).Add(more); until.After(began) {
		c.conn.SetReadDeadline(until)
		_, err := c.in.Peek(1)
		c.conn.SetReadDeadline(began.Add(timing.RaftIO))
		if errors.Is(err, os.ErrDeadlineExceeded) && h.t.told.heard(id, args, resp, timing.LeaderLease) {
			h.await(c, id, args, began)
			return errAnswersLate
		}
	}
	return h.t.receive(c, id, args, resp)
}

// await receives the answer of an exchange on a goroutine of its own.
func (h *heartbeats) await(c *dialled, id raft.ServerID, args *raft.AppendEntriesRequest, began time.Time) {
	request := *args // raft uses args for the next heartbeat
	late := &lateHeartbeat{term: args.Term, done: make(chan struct{})}
	h.mu.Lock()
	if len(h.late) >= maxContacts {
		clear(h.late) // servers of the past take no memory
	}
	h.late[id] = late
	h.mu.Unlock()
	h.wg.Go(func() {
		defer close(late.done)
		late.err = h.t.receive(c, id, &request, &late.resp)
		h.noteLate(id, &request, late, began)
	})
}

// noteLate notes the end of an exchange that went on after its heartbeat was answered. The
// failure of an exchange of a former term says nothing of the server in the present one, in
// which the server may have answered since.
func (h *heartbeats) noteLate(id raft.ServerID, request *raft.AppendEntriesRequest, late *lateHeartbeat, began time.Time) {
	if late.err == nil || h.t.reach.serving(string(id), request.Term) {
		h.note(id, request, &late.resp, began, late.err)
	}
}

// take returns the exchange with a server that goes on in the term, or nil, and forgets it.
func (h *heartbeats) take(id raft.ServerID, term uint64) *lateHeartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	late := h.late[id]
	delete(h.late, id)
	if late == nil || late.term != term {
		return nil
	}
	return late
}

// pulse has a leader's raft ask for a heartbeat to each server now. Raft's own timers, one for
// each server, fire at moments of their own and would wake the process for each; raft starts
// them anew after each heartbeat, so a pulse at each moment of the grid is ahead of them. Raft
// looks at its heartbeats whenever the timeout is lowered.
func (r *Raft) pulse() {
	r.load(timing.MostElection + 1)
	r.load(timing.MostElection)
}
