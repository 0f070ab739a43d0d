package locks

import (
	"context"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Break takes the grant of key with token t away from its holder, for an operator
// who knows better. A set is taken away as a whole. It returns nil once the grant
// no longer holds the key, and that is safe: the holder's client has ended the
// lock, with a *LostError of reason Broken, before it let go of the key; or the
// holder was not heard of and its session has expired, after its trust ended. The
// work of a Do, Elect or Spread has its context ended, but is not waited for. A
// grant whose delay runs (see Delay) is freed at once.
//
// If t does not hold the key, or its holder upgrades it meanwhile, nothing is
// changed: the error is a *HeldError if another grant does, and matches ErrNotHeld if none does. Otherwise the error is
// ctx's end, with cluster.ErrNoQuorum if no leader was found until then, a
// *cluster.ConfigError, ErrClosed or cluster.ErrStopped; then it is not known
// whether the grant was broken, and if it was, the break goes on by itself.
func (c *Client) Break(ctx context.Context, key string, t fence.Token) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if t == 0 {
		return configError("token", "0 is no token")
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	token := machine.Token(t)
	// Asked first: once the break is under way, that the grant is not found
	// means that it has succeeded.
	q := replica.Query{Key: key, Waiters: replica.MaxListed}
	a, err := c.read(ctx, q)
	if err != nil {
		return callError("break", key, err)
	}
	if presenceOf(a.Status, token) == absent {
		if len(a.Status.Holders) > 0 {
			h := a.Status.Holders[0]
			return &HeldError{Key: key, Client: h.Client, Node: h.Node, Token: fence.Token(h.Token), Delayed: h.Delayed}
		}
		return fmt.Errorf("%w: %q (token %d)", ErrNotHeld, key, uint64(t))
	}
	var retry backoff
	for {
		out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command {
			return machine.Break{Session: s.id, Key: key, Token: token}
		})
		switch {
		case err != nil:
			return callError("break", key, err)
		case out.Code == machine.NotHeld:
			return c.upgradedError(ctx, key, a.Status, token)
		case out.Code != machine.OK:
			return callError("break", key, outcomeError("break", out))
		}
		// Not before the answer: it may have been freed in that step.
		for q.Version = 0; ; {
			a, err := c.read(ctx, q)
			if err != nil {
				if c.isFinal(ctx, err) || retry.wait(ctx, c.closing) != nil {
					return callError("break", key, err)
				}
				continue
			}
			retry.reset()
			q.Version = a.Version
			is := presenceOf(a.Status, token)
			if is == absent {
				return nil
			}
			if is == unlisted {
				break // ask by another Break, which changes nothing more
			}
		}
		if err := retry.wait(ctx, c.closing); err != nil {
			return callError("break", key, err)
		}
	}
}

// upgraded returns nil unless the grant that held key under token, as it was told
// before, is there under another one: it was upgraded meanwhile, and not broken.
func (c *Client) upgradedError(ctx context.Context, key string, before machine.Status, token machine.Token) error {
	i := slices.IndexFunc(before.Holders, func(g machine.Grant) bool { return g.Token == token })
	if i < 0 {
		return nil
	}
	a, err := c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed})
	if err != nil {
		return callError("break", key, err)
	}
	was := before.Holders[i]
	for _, h := range a.Status.Holders {
		if h.Session == was.Session && h.Seq == was.Seq && !h.Delayed {
			return &HeldError{Key: key, Client: h.Client, Node: h.Node, Token: fence.Token(h.Token)}
		}
	}
	return nil
}

type presence uint8

const (
	absent presence = iota
	present
	unlisted // the list of holders was cut before it
)

// holding says whether the grant of token is among a key's holders.
func presenceOf(st machine.Status, token machine.Token) presence {
	for _, h := range st.Holders {
		if h.Token == token {
			return present
		}
	}
	if n := len(st.Holders); n < st.Held && (n == 0 || st.Holders[n-1].Token < token) {
		return unlisted
	}
	return absent
}
