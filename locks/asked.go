package locks

import (
	"context"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
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
// key, call Acquire. AskHolder asks one holder.
//
// On failure the holders may or may not have been asked. The error is the cause
// of ctx, with cluster.ErrNoQuorum if no leader was found until then; a
// *cluster.ConfigError; ErrClosed or cluster.ErrStopped. If the leader's
// Security.Authorize refuses, the error is a *cluster.DeniedError, and the holders
// were not asked.
func (c *Client) Ask(ctx context.Context, key string) error {
	out, err := c.ask(ctx, key, 0)
	if err == nil && out.Code != machine.OK && out.Code != machine.NotHeld {
		err = callError("ask for", key, outcomeError("ask", out))
	}
	return err
}

// AskHolder is Ask for the grant of key with token t alone: other holders of the key,
// and a holder that gets the key while the request is under way, are not asked. It is for
// an operator who has seen the token.
//
// If the grant t does not hold the key when the request arrives, nobody is asked: the
// error is a *HeldError if another grant holds the key, and matches ErrNotHeld if none
// does. The holder may have been asked even so, and have released the key before the
// request was repeated after a lost answer. The other errors are those of Ask.
func (c *Client) AskHolder(ctx context.Context, key string, t fence.Token) error {
	if t == 0 {
		return configError("token", "0 is no token")
	}
	out, err := c.ask(ctx, key, machine.Token(t))
	switch {
	case err != nil:
		return err
	case out.Code == machine.OK:
		return nil
	case out.Code == machine.NotHeld && out.Holder.Client != "":
		return heldByHolder(key, out.Holder)
	case out.Code == machine.NotHeld:
		return fmt.Errorf("%w: %q (token %d)", ErrNotHeld, key, uint64(t))
	}
	return callError("ask for", key, outcomeError("ask", out))
}

// ask asks the holder of the grant t of key or, with t 0, all holders.
func (c *Client) ask(ctx context.Context, key string, t machine.Token) (machine.Outcome, error) {
	if err := checkContext(ctx); err != nil {
		return machine.Outcome{}, err
	}
	if err := checkKey(key); err != nil {
		return machine.Outcome{}, err
	}
	out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command {
		return machine.Ask{Session: s.id, Key: key, Token: t}
	})
	if err != nil {
		return out, callError("ask for", key, denied(cluster.VerbAsk, key, err))
	}
	return out, nil
}
