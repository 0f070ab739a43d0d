package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// confirmTerm asks one voter whether its term is at most the given term, and calls
// answer once.
func (n *Node) confirmTerm(ctx context.Context, voter string, number uint64, answer func(yes bool)) {
	to, err := n.locate(voter)
	if err != nil {
		answer(false)
		return
	}
	n.confirmAt(ctx, to, wire.ConfirmRequest{Term: number, Voter: voter}, answer)
}

// confirmAt is confirmTerm of a voter at a place.
func (n *Node) confirmAt(ctx context.Context, to member.Process, req wire.ConfirmRequest, answer func(yes bool)) {
	if n.unreached.rests(to) {
		answer(false)
		return
	}
	n.peers.Begin(ctx, to, wire.Confirm, wire.Marshal(&req), func(f wire.Frame, err error) {
		if _, ok := errors.AsType[*stream.DialError](err); ok && ctx.Err() == nil {
			n.unreached.note(to)
		}
		answer(err == nil && f.Code == wire.CodeOK)
	})
}

// unreached remembers the voters that could not be dialled for a confirmation, for a moment. A
// leader that is asked for more and more begins a round as soon as the one before has its
// majority, thousands in a second, and each would dial the voter that has ended. A stream that
// has broken is dialled again at once.
type unreached struct {
	mu    sync.Mutex
	until map[member.Process]time.Time
}

const maxUnreached = 64 // more than a configuration has voters

// rests reports whether a dial of the process has failed just now.
func (u *unreached) rests(to member.Process) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.until[to])
}

func (u *unreached) note(to member.Process) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until == nil || len(u.until) >= maxUnreached {
		u.until = make(map[member.Process]time.Time)
	}
	u.until[to] = time.Now().Add(timing.LeastBackoff)
}
