package locks

import (
	"context"

	"github.com/wardmote/wardmote/internal/machine"
)

// Asked is closed once somebody has asked that the key be let go of, by
// Client.Ask. Nothing follows from that unless the holder wants it to. It is not
// closed by the end of the lock.
func (l *Lock) Asked() <-chan struct{} {
	if l.zero() {
		return nil
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return signal(&l.g.ensureRare().asked, l.g.asked)
}

// Contended is closed once somebody else waits for the key, or for a key that
// cannot be had beside it: a holder may then want to be brief. It stays closed if
// they give up. It is not closed by the end of the lock.
func (l *Lock) Contended() <-chan struct{} {
	if l.zero() {
		return nil
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return signal(&l.g.ensureRare().contended, l.g.contended)
}

// signal returns the channel at c, made if nobody has asked for it before.
func signal(c *chan struct{}, closed bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if closed {
			close(*c)
		}
	}
	return *c
}

// Ask tells all who hold key that somebody would like them to let go of it: their
// Lock.Asked is closed. It returns nil once the cluster has taken note, also if
// nobody holds the key: there is nothing to ask then. Whether they let go is up to
// them; to have the key, Acquire it.
//
// On failure the holders may have been asked, or not: the error is ctx's end, with
// cluster.ErrNoQuorum if no leader was found until then; *cluster.ConfigError;
// ErrClosed or cluster.ErrStopped.
func (c *Client) Ask(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command { return machine.Ask{Session: s.id, Key: key} })
	switch {
	case err != nil:
		return callError("ask for", key, err)
	case out.Code == machine.OK, out.Code == machine.NotHeld:
		return nil
	}
	return callError("ask for", key, outcomeError("ask", out))
}
