package consensus

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// Servers returns the latest configuration, sorted by ID. The configuration may
// not be committed yet.
func (r *Raft) Servers() []member.Server {
	f := r.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var out []member.Server
	for _, s := range f.Configuration().Servers {
		out = append(out, member.Server{ID: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	slices.SortFunc(out, func(a, b member.Server) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Voters returns the IDs of the voters of the latest configuration, sorted. The
// configuration may not be committed yet.
func (r *Raft) Voters() []string {
	var out []string
	for _, s := range r.Servers() {
		if s.Voter {
			out = append(out, s.ID)
		}
	}
	return out
}

// Votes reports whether this Raft is a voter of its latest configuration.
func (r *Raft) Votes() bool { return slices.Contains(r.Voters(), r.id) }

// AddNonvoter, AddVoter and Remove change the configuration; each waits until the
// change is committed, or fails after timing.ConfigChange.
//
// prev is the index of the committed configuration on which the change was
// decided. Raft refuses the change if a newer configuration exists. Raft's own
// GetConfiguration().Index() cannot serve as prev: it is always 0, and 0 turns
// the comparison off. The FSM learns the index from the log: see FSM.Configured.
func (r *Raft) AddNonvoter(id string, prev uint64) error {
	return r.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), prev, timing.ConfigChange).Error()
}

// AddVoter adds a voter at once: see AddNonvoter.
func (r *Raft) AddVoter(id string, prev uint64) error {
	return r.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), prev, timing.ConfigChange).Error()
}

// Remove removes a server, a voter or not: see AddNonvoter. Raft does not tell the
// removed server.
func (r *Raft) Remove(id string, prev uint64) error {
	return r.raft.RemoveServer(raft.ServerID(id), prev, timing.ConfigChange).Error()
}

// Transfer hands leadership to another voter: raft chooses the voter with the
// newest log. Transfer waits up to timing.Transfer, or until ctx ends.
//
// Only a single transfer runs at a time, because raft may leave a transfer
// unanswered if raft stops meanwhile; until then a second Transfer fails at once.
func (r *Raft) Transfer(ctx context.Context) error {
	if !r.transferring.CompareAndSwap(false, true) {
		return raft.ErrLeadershipTransferInProgress
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Transfer)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- r.raft.LeadershipTransfer().Error()
		r.transferring.Store(false)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
