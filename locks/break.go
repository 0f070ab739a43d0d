package locks

import (
	"context"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Break takes the grant of key with token t away from its holder, on an
// operator's order. A Set is taken away as a whole. The token of any lock of the option
// Sticky names the grant that the lock belongs to. When Break returns nil, the
// grant no longer holds the key, and the key is safe to use: either the
// holder's client ended the lock, with a *LostError of reason Broken, before
// releasing the key; or no beat of the holder arrived, and the holder's session
// has expired, after the end of its trust. The context of the work of a Do,
// Elect or Spread has ended, but Break does not wait for the work. A grant
// whose delay has begun (see Delay) is freed at once.
//
// If the grant t does not hold the key, nothing is changed: the error is a
// *HeldError if another grant holds the key, and matches ErrNotHeld if none
// does. The same applies if the holder upgrades the grant during the call. The
// other errors are the cause of ctx, with cluster.ErrNoQuorum if no leader was
// found until then; a *cluster.ConfigError; ErrClosed; and cluster.ErrStopped.
// After these the grant may or may not be broken; a break under way continues
// by itself. If the leader's Security.Authorize refuses, the error is a
// *cluster.DeniedError; the grant is as before, unless an earlier Break is under
// way.
func (c *Client) Break(ctx context.Context, key string, t fence.Token) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if t == 0 {
		return configError("token", "0 is no token")
	}
	token := machine.Token(t)
	// Read first: after the Break command, a read without the grant is proof of
	// success.
	a, err := c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed})
	if err != nil {
		return callError("break", key, err)
	}
	named := token // the grant's own token
	switch listed, beyond := findGrant(a.Status, token); {
	case listed, beyond:
	case mayBeInBlock(a.Status, token):
		named = a.Status.Holders[0].Token
	case len(a.Status.Holders) > 0:
		return heldBy(key, a.Status.Holders[0])
	default:
		return fmt.Errorf("%w: %q (token %d)", ErrNotHeld, key, uint64(t))
	}
	for {
		out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command {
			return machine.Break{Session: s.id, Key: key, Token: token}
		})
		switch {
		case err != nil:
			return callError("break", key, denied(cluster.VerbBreak, key, err))
		case out.Code == machine.NotHeld && named != token:
			if a, err = c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed}); err != nil {
				return callError("break", key, err)
			}
			if listed, _ := findGrant(a.Status, named); listed { // the token is above the block
				return heldBy(key, a.Status.Holders[0])
			}
			return nil
		case out.Code == machine.NotHeld:
			return c.upgradedError(ctx, key, a.Status, token)
		case out.Code != machine.OK:
			return callError("break", key, outcomeError("break", out))
		}
		freed, err := c.awaitFreed(ctx, key, named)
		if err == nil && !freed {
			err = new(backoff).wait(ctx, c.closing)
		}
		switch {
		case err != nil:
			return callError("break", key, err)
		case freed:
			return nil
		}
	}
}

// mayBeInBlock reports whether token can be of a block of the only holder's grant, of a lock
// of the option Sticky. The lock table knows the end of the block.
func mayBeInBlock(st machine.Status, token machine.Token) bool {
	return st.Held == 1 && len(st.Holders) == 1 && st.Holders[0].Block > 0 && st.Holders[0].Token < token
}

// awaitFreed waits until the grant of key with token is gone. If the list of
// holders is too long to show the grant, awaitFreed returns false: then the
// caller must ask by another Break command, which changes nothing more.
func (c *Client) awaitFreed(ctx context.Context, key string, token machine.Token) (freed bool, err error) {
	// The first answer has the present state, since the Break command itself may
	// have freed the key.
	for a, err := range c.follow(ctx, replica.Query{Key: key, Waiters: replica.MaxListed}, c.isFinal) {
		if err != nil {
			return false, err
		}
		if listed, beyond := findGrant(a.Status, token); !listed {
			return !beyond, nil
		}
	}
	return false, nil // not reached, since follow ends with an error
}

// upgradedError returns nil if the grant of key with token is gone, given the
// key's status before the Break command. If the grant was upgraded meanwhile,
// and so still holds the key under another token, the error is a *HeldError.
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
			return heldBy(key, h)
		}
	}
	return nil
}

// heldBy returns the error for a key held by h.
func heldBy(key string, h machine.Grant) error {
	return &HeldError{Key: key, Client: h.Client, Node: h.Node, Token: fence.Token(h.Token), Delayed: h.Delayed}
}

// findGrant reports whether the grant with token is among the listed holders of
// a key, and if not, whether the list ends before the grant's place.
func findGrant(st machine.Status, token machine.Token) (listed, beyond bool) {
	n := len(st.Holders)
	listed = slices.ContainsFunc(st.Holders, func(h machine.Grant) bool { return h.Token == token })
	return listed, !listed && n < st.Held && (n == 0 || st.Holders[n-1].Token < token)
}
