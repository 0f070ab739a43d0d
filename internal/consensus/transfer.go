package consensus

import (
	"context"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// TransferTo hands leadership to the voter of a raft ID: see Transfer. Left to
// itself, raft may choose a voter that is out of reach, or one that leaves too.
func (r *Raft) TransferTo(ctx context.Context, id string) error {
	if !r.transferring.CompareAndSwap(false, true) {
		return raft.ErrLeadershipTransferInProgress
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Transfer)
	defer cancel()
	r.tune()
	done := make(chan error, 1)
	go func() {
		done <- r.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(id)).Error()
		r.transferring.Store(false)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
