package locks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

var (
	// ErrSessionEnded: an operator ended the session by Client.EndSession. A *LostError
	// of the reason SessionEnded matches it.
	ErrSessionEnded = errors.New("locks: session ended by an operator")

	// ErrNoSuchSession: no session with the Ref is open. It has ended, or there was never
	// one. Nothing was changed.
	ErrNoSuchSession = errors.New("locks: no such session")
)

// Session describes an open session. A client has one session at a time.
type Session struct {
	// Ref names the session for EndSession: 32 hexadecimal digits, the same on all
	// members for as long as the session is open. A Ref proves nothing and can be shown
	// to anybody: it is a hash of the session's ID, the ID is a hash of the session's
	// key, and every request for a session needs the key, of 128 random bits, and under
	// TLS a signature of the member's process for the very stream.
	Ref string `json:"ref"`

	Client string        `json:"client"`         // its Options.Name
	Node   string        `json:"node"`           // the member on which the client runs
	Self   bool          `json:"self,omitempty"` // the present session of this very client
	TTL    time.Duration `json:"ttl"`

	// Opened is the time of the opening by the clock of the leader of that time. It is
	// for people to read, like Holder.Acquired.
	Opened time.Time `json:"opened,omitzero"`

	// Left is how long the cluster will keep the session if no further beat arrives.
	Left time.Duration `json:"left"`

	// Ending says that the session is over for its client, and that it still has keys:
	// EndSession has ended it, its client has not answered yet, and the keys are free
	// after Left at the latest; or it has ended with thousands of keys, which the cluster
	// is about to free.
	Ending bool `json:"ending,omitempty"`

	Keys  int               `json:"keys"`           // the number of keys that the session holds
	Waits int               `json:"waits"`          // the number of its requests in queues
	Meta  map[string]string `json:"meta,omitempty"` // Options.Meta
}

// Sessions yields the sessions of all clients of the cluster, in the order of their
// Refs. The sessions come in pages of up to 256. Each page shows one moment during the
// call, and a later page a later moment. A session that is opened or ends meanwhile may
// or may not be yielded; any other session is yielded once, also if the leader changes
// meanwhile.
//
// Sessions needs no session of its own. The sequence ends after the last session, or when
// the loop breaks, or with an error like List's.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		if err := checkContext(ctx); err != nil {
			yield(Session{}, err)
			return
		}
		q := replica.SessionsQuery{Limit: replica.MaxScanned}
		for {
			a, err := c.readSessions(ctx, q)
			if err != nil {
				yield(Session{}, fmt.Errorf("locks: list the sessions: %w", err))
				return
			}
			for _, s := range a.Sessions {
				if !yield(c.newSessionStatus(s), nil) {
					return
				}
			}
			if !a.More {
				return
			}
			q.From = a.NextFrom
		}
	}
}

func (c *Client) readSessions(ctx context.Context, q replica.SessionsQuery) (replica.SessionsPage, error) {
	return readUntilClosed(ctx, c, func(ctx context.Context) (replica.SessionsPage, error) { return c.rep.Sessions(ctx, q) })
}

func (c *Client) newSessionStatus(s replica.ListedSession) Session {
	own := c.currentSession()
	return Session{
		Ref:    s.Ref.String(),
		Client: s.Client,
		Node:   s.Node,
		Self:   own != nil && own.id.Ref() == s.Ref,
		TTL:    time.Duration(s.TTL) * time.Millisecond,
		Opened: timeOf(s.Opened),
		Left:   time.Duration(s.Left) * time.Millisecond,
		Ending: s.Ending,
		Keys:   s.Keys,
		Waits:  s.Waits,
		Meta:   decodeMeta(s.Meta),
	}
}

// EndSession ends the session of ref, a Session.Ref, on an operator's order: a Break of
// everything that the session's client holds. When EndSession returns nil, the session
// has ended and its keys are safe to use: either its client has ended all locks, with a
// *LostError of reason SessionEnded, before it closed the session; or no beat of the
// session has counted since the order, and the session has expired, after the end of its
// trust: a TTL after the order at the latest, whatever the client does. The contexts of
// the work of Do, Elect and Spread have ended, but EndSession does not wait for the work.
// The option Delay does not keep a key.
//
// From the order on the session is granted nothing, and its requests leave the queues.
// The client is not shut out: Acquire and the like report the loss to Trace.Retrying and
// ask again in a new session, behind the present waiters, as after any lost session. Stop
// the client's process, or have Security.Authorize refuse it, to keep it out.
//
// If no session of that Ref is open, the error matches ErrNoSuchSession, and nothing was
// changed; the cluster does not remember ended sessions. A session may be its own
// client's. The other errors are those of Break: the cause of ctx and the like, after
// which the order may or may not have been given, and goes on by itself; and a
// *cluster.DeniedError if the leader's Security.Authorize refuses VerbEndSession.
func (c *Client) EndSession(ctx context.Context, ref string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	r, ok := machine.ParseSessionRef(ref)
	if !ok {
		return configError("ref", "%.40q is no Session.Ref", ref)
	}
	const verb = "end the session"
	// Read first: after the order, NoSuchSession is proof of success.
	a, err := c.readSessions(ctx, replica.SessionsQuery{From: r, Limit: 1})
	switch {
	case err != nil:
		return callError(verb, ref, err)
	case len(a.Sessions) == 0 || a.Sessions[0].Ref != r:
		return callError(verb, ref, ErrNoSuchSession)
	}
	out, err := c.proposeEnd(ctx, r)
	switch {
	case err != nil:
		return callError(verb, ref, denied(cluster.VerbEndSession, ref, err))
	case out.Code == machine.NoSuchSession:
		return nil // ended meanwhile, maybe by an earlier copy of the order
	case out.Code != machine.OK:
		return callError(verb, ref, outcomeError(verb, out))
	}
	_, err = retryRead(ctx, c, c.isFinal, func() (replica.SessionsPage, error) {
		return c.readSessions(ctx, replica.SessionsQuery{From: r, Limit: 1, Gone: true})
	})
	if err != nil {
		return callError(verb, ref, err)
	}
	return nil
}

// proposeEnd gives the order, and again if this client's session has ended before the
// answer came: it may be the session of the order.
func (c *Client) proposeEnd(ctx context.Context, ref machine.SessionRef) (machine.Outcome, error) {
	for {
		out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command {
			return machine.EndSession{Session: s.id, Ref: ref}
		})
		if !errors.Is(err, replica.ErrNoSession) || ctx.Err() != nil {
			return out, err
		}
	}
}
