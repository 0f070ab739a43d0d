package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// The facts of a refusal by Security.Authorize reach the caller through a real
// cluster.
func TestAuthorizeRefusesRequestsAboutOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node, err := cluster.Start(ctx, cluster.Config{
		InitialSize: 1, TTL: time.Second,
		Security: cluster.Security{Insecure: true, Authorize: func(cluster.Member, cluster.Verb, string) error {
			return errors.New("not you")
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Stop()
	a, b := New(node, Options{Name: "a"}), New(node, Options{Name: "b"})
	l, err := a.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	for verb, err := range map[cluster.Verb]error{
		cluster.VerbBreak: b.Break(ctx, "k", l.Token()),
		cluster.VerbAsk:   b.Ask(ctx, "k"),

		cluster.VerbEndSession:  b.EndSession(ctx, refOf(a)),
		cluster.VerbSetCapacity: b.SetCapacity(ctx, "k", 3),
	} {
		key := "k"
		if verb == cluster.VerbEndSession {
			key = refOf(a)
		}
		d, ok := errors.AsType[*cluster.DeniedError](err)
		if !ok || *d != (cluster.DeniedError{Verb: verb, Key: key, Reason: "not you"}) || !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("%v: %v", verb, err)
		}
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}
