package locks

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// A lineage is the locks that a context descends from, the nearest first: the
// context of a lock carries it, and so do all that are derived from it. Whoever
// waits with such a context goes on holding those locks meanwhile. The cluster is
// told of them, so that it can see when such waits run in a circle.
type lineage struct {
	lock  *Lock
	above *lineage // of the context that lock was acquired with
}

type lineageKey struct{}

// withLineage adds l to ctx's lineage.
func withLineage(ctx context.Context, l *Lock) context.Context {
	above, _ := ctx.Value(lineageKey{}).(*lineage)
	return context.WithValue(ctx, lineageKey{}, &lineage{lock: l, above: above})
}

// under returns the tokens that the locks in ctx's lineage had first, of those that
// have not ended, of whatever client of c's cluster, but for one. Another cluster's
// tokens would name other locks here.
func (c *Client) lineageTokens(ctx context.Context, but machine.Token) ([]machine.Token, error) {
	var tokens []machine.Token
	cluster := c.rep.Cluster()
	at, _ := ctx.Value(lineageKey{}).(*lineage)
	for ; at != nil; at = at.above {
		t := machine.Token(at.lock.g.firstToken)
		switch {
		case !at.lock.held(), at.lock.g.s.c.rep.Cluster() != cluster, t == but:
			continue
		case slices.Contains(tokens, t):
			continue // the locks of one owner share a token
		}
		if len(tokens) == machine.MaxUnder {
			return nil, configError("ctx", "it descends from the contexts of more than %d locks that are held", machine.MaxUnder)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}
