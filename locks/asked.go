package locks

import (
	"context"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
)

// Asked returns a channel to be closed once a client calls Client.Ask for the
// key. The holder is free to ignore the request. The end of the lock does not
// close the channel.
func (l *Lock) Asked() <-chan struct{} {
	return readGrant(l, func(g *grant) <-chan struct{} { return signal(&g.ensureRare().asked, g.asked) })
}

// Contended returns a channel to be closed once another request waits for the
// key, or for a key in conflict with this lock. A holder may then want to be
// brief. The channel stays closed if the other request gives up. The end of the
// lock does not close the channel.
func (l *Lock) Contended() <-chan struct{} {
	return readGrant(l, func(g *grant) <-chan struct{} { return signal(&g.ensureRare().contended, g.contended) })
}

// signal returns the channel at c. If c is nil, signal makes a channel first,
// closed if the argument is true.
func signal(c *chan struct{}, closed bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if closed {
			close(*c)
		}
	}
	return *c
}

// Ask asks all holders of key to release the key: their Lock.Asked is closed.
// Ask returns nil once the cluster has recorded the request, and also if the
// key has no holder. The holders are free to ignore the request; to get the
// key, call Acquire.
//
// On failure the holders may or may not have been asked. The error is the cause
// of ctx, with cluster.ErrNoQuorum if no leader was found until then; a
// *cluster.ConfigError; ErrClosed or cluster.ErrStopped. If the leader's
// Security.Authorize refuses, the error is a *cluster.DeniedError, and the holders
// were not asked.
func (c *Client) Ask(ctx context.Context, key string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command { return machine.Ask{Session: s.id, Key: key} })
	switch {
	case err != nil:
		return callError("ask for", key, denied(cluster.VerbAsk, key, err))
	case out.Code == machine.OK, out.Code == machine.NotHeld:
		return nil
	}
	return callError("ask for", key, outcomeError("ask", out))
}
