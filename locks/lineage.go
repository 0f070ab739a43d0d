package locks

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// A lineage is the list of locks that a context descends from, the nearest
// first. A lock's context has a lineage, and so has every context derived from
// that. A caller that waits under such a context keeps holding these locks
// meanwhile. The client sends the lineage to the cluster, so that the cluster
// can find cycles of waits.
type lineage struct {
	lock  *Lock
	above *lineage // the lineage of the context that lock was acquired with
}

type lineageKey struct{}

// withLineage adds l to ctx's lineage.
func withLineage(ctx context.Context, l *Lock) context.Context {
	above, _ := ctx.Value(lineageKey{}).(*lineage)
	return context.WithValue(ctx, lineageKey{}, &lineage{lock: l, above: above})
}

// withoutLineage returns ctx with an empty lineage: a wait under the result counts as a
// wait of a caller that holds nothing.
func withoutLineage(ctx context.Context) context.Context {
	return context.WithValue(ctx, lineageKey{}, (*lineage)(nil))
}

// lineageTokens returns the first tokens of the held locks in ctx's lineage, of
// all clients of c's cluster, except the token but. Other clusters' locks are
// skipped, since their tokens would name other locks here.
func (c *Client) lineageTokens(ctx context.Context, but machine.Token) ([]machine.Token, error) {
	var tokens []machine.Token
	cluster := c.rep.Cluster()
	at, _ := ctx.Value(lineageKey{}).(*lineage)
	for ; at != nil; at = at.above {
		t := machine.Token(at.lock.g.firstToken)
		// The locks of one owner share a token.
		if t == but || slices.Contains(tokens, t) || !at.lock.held() || at.lock.g.s.c.rep.Cluster() != cluster {
			continue
		}
		if len(tokens) == machine.MaxUnder {
			return nil, configError("ctx", "a descendant of the contexts of more than %d held locks", machine.MaxUnder)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}
