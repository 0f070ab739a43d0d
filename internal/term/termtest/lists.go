package termtest

import (
	"context"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// Values implements replica.Replica.
func (m *Member) Values(ctx context.Context, q replica.ValuesQuery) (replica.ValuesPage, error) {
	if err := q.Check(); err != nil {
		return replica.ValuesPage{}, err
	}
	return ask(ctx, m, request[replica.ValuesPage]{
		send: func(t *term.Term, _ *term.Subscriber, done func(replica.ValuesPage, wire.Code)) func() {
			return t.Values(q, done)
		},
	})
}

// Sessions implements replica.Replica.
func (m *Member) Sessions(ctx context.Context, q replica.SessionsQuery) (replica.SessionsPage, error) {
	if err := q.Check(); err != nil {
		return replica.SessionsPage{}, err
	}
	return ask(ctx, m, request[replica.SessionsPage]{
		waits: q.Gone,
		send: func(t *term.Term, _ *term.Subscriber, done func(replica.SessionsPage, wire.Code)) func() {
			return t.Sessions(q, done)
		},
	})
}
