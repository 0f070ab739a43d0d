package link

import (
	"context"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// Values implements replica.Replica.
func (k *Link) Values(ctx context.Context, q replica.ValuesQuery) (replica.ValuesPage, error) {
	if err := q.Check(); err != nil {
		return replica.ValuesPage{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.ValuesPage, wire.Code)) func() {
		return up.Values(q, done)
	})
	return a, err
}

// Sessions implements replica.Replica.
func (k *Link) Sessions(ctx context.Context, q replica.SessionsQuery) (replica.SessionsPage, error) {
	if err := q.Check(); err != nil {
		return replica.SessionsPage{}, err
	}
	a, _, err := call(ctx, k, func(up upstream, done func(replica.SessionsPage, wire.Code)) func() {
		return up.Sessions(q, done)
	})
	return a, err
}

func (u *remote) Values(q replica.ValuesQuery, done func(replica.ValuesPage, wire.Code)) func() {
	return beginRead(u, wire.Values, &q, false, done)
}

func (u *remote) Sessions(q replica.SessionsQuery, done func(replica.SessionsPage, wire.Code)) func() {
	return beginRead(u, wire.Sessions, &q, q.Gone, done)
}
