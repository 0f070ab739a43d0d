package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// propose proposes a command and reports the seqs in s.seen with it. If the
// command may not have arrived, the seqs are reported with the next command
// again.
func (s *session) propose(ctx context.Context, command func(seen []uint64) machine.Command) (machine.Outcome, error) {
	s.mu.Lock()
	n := min(len(s.seen), machine.MaxSeen)
	seen := slices.Clone(s.seen[:n])
	if s.seen = s.seen[n:]; len(s.seen) == 0 {
		s.seen = nil
	}
	s.mu.Unlock()

	out, err := s.c.rep.Propose(ctx, command(seen))
	if n > 0 && (err != nil || out.Code == machine.BadCommand || out.Code == machine.WrongFormat) {
		s.mu.Lock()
		s.seen = append(s.seen, seen...)
		s.mu.Unlock()
	}
	return out, err
}

// proposeInAnySession proposes a command in the present session or a later
// session, no matter which, and tries until ctx or the client ends.
func (c *Client) proposeInAnySession(ctx context.Context, command func(*session) machine.Command) (machine.Outcome, error) {
	return c.callInAnySession(ctx, func(ctx context.Context, s *session) (machine.Outcome, error) {
		return c.rep.Propose(ctx, command(s))
	})
}

// callInAnySession calls propose with the present session, and with each later one while
// the cluster answers that the session is not open, until ctx or the client ends.
func (c *Client) callInAnySession(ctx context.Context, propose func(context.Context, *session) (machine.Outcome, error)) (machine.Outcome, error) {
	if err := c.beginCall(); err != nil {
		return machine.Outcome{}, err
	}
	defer c.calls.Done()
	defer c.mayBlock(ctx, "")()
	if ctx.Err() != nil {
		return machine.Outcome{}, endOf(ctx)
	}
	tctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()
	var retry backoff
	for {
		var out machine.Outcome
		s, err := c.liveSession(tctx)
		if err == nil {
			out, err = propose(tctx, s)
		}
		if err == nil && out.Code == machine.NoSession {
			s.lose(SessionExpired)
			if err = retry.wait(tctx, c.closing); err == nil {
				continue
			}
		}
		if err != nil && tctx.Err() != nil {
			err = whyEnded(tctx, err)
		}
		return out, err
	}
}

// unknownToCluster reports whether a command was refused because a member of
// the cluster, or the cluster's present format, is too old for the command.
func unknownToCluster(out machine.Outcome, err error) bool {
	return err == nil && out.Code == machine.WrongFormat || errors.Is(err, ErrVersion)
}

// mayBeApplied reports whether a command that failed with err may have been
// applied.
func mayBeApplied(err error) bool {
	failed, ok := errors.AsType[*replica.Error](err)
	return err != nil && (!ok || failed.Unknown)
}

// outcomeError returns the error of an outcome not expected by a correct
// client.
func outcomeError(verb string, out machine.Outcome) error {
	switch out.Code {
	case machine.BadCommand:
		return configError(out.Field, "refused by the cluster, limit %d", out.Limit)
	case machine.WrongFormat:
		return ErrVersion
	case machine.TokensSpent:
		return errors.New("the cluster has no tokens left")
	case machine.TooManyKeys: // an upgrade waits under a long lineage
		return tooManyKeys(out)
	case machine.TooMuchOfNode:
		return &QuotaError{Field: out.Field, Limit: int(out.Limit)}
	case machine.TooManyUnseen:
		return fmt.Errorf("more than %d requests of one client are unanswered", out.Limit)
	case machine.NodeEnded:
		return errors.New("a later process of this member has taken this one for ended")
	case machine.NotFounded:
		return errors.New("the cluster is not founded yet")
	}
	return fmt.Errorf("cannot %s: code %d", verb, out.Code)
}
