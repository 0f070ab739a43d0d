package wardmote

import (
	"context"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/locks"
)

// Local returns a client of a cluster within this process: one member, in memory,
// without a port and without the wait after a founding. The locks hold among the users
// of this client, and of other clients made by locks.New on its Node. They hold against
// no other process, and two Locals know nothing of each other. Local is for
// development, tests and tools; nothing but a call of Local chooses it.
//
// The member and its clients end with ctx; Node().Stop() ends them earlier, and waits
// for the end. Local returns at once; the first call for a lock waits for some
// milliseconds.
func Local(ctx context.Context) (*locks.Client, error) {
	if ctx == nil {
		return nil, &cluster.ConfigError{Field: "ctx", Reason: "nil"}
	}
	alone, err := replica.Alone(ctx)
	if err != nil {
		return nil, err
	}
	node := alone.(*cluster.Node)
	client := locks.New(node, locks.Options{})
	context.AfterFunc(ctx, func() {
		bye, cancel := context.WithTimeout(context.Background(), timing.CloseSessions)
		defer cancel()
		// What the errors tell, nobody needs to know: the table ends with the node.
		_ = client.Close(bye)
		_ = node.Stop()
	})
	return client, nil
}
