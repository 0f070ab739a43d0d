// Package controller joins wardmote and controller-runtime: work on a single process of several
// replicas of an operator, and a readiness check.
//
// Leave the leader election of the manager itself to its Lease: the manager ends its process
// when it loses, and the API server is there anyway. Runnable is for other work of the
// process: with a takeover within seconds, with a fencing token, or while the API server is
// away.
package controller

import (
	"context"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// Runnable is a manager.Runnable that leads Work on a single manager. Work's context
// ends when the lock is lost, with a *locks.LostError as its cause, or when the manager
// stops; nobody else leads before Work has returned, unless the lock was lost. See
// locks.Client.Elect for the error of Work.
type Runnable struct {
	Client *locks.Client
	Key    string
	Work   locks.Work
}

var (
	_ manager.Runnable               = (*Runnable)(nil)
	_ manager.LeaderElectionRunnable = (*Runnable)(nil)
)

// Start stands for election until ctx ends, and returns nil then. Any other end is an
// error, and the manager ends too.
func (r *Runnable) Start(ctx context.Context) error {
	err := r.Client.Elect(ctx, r.Key, r.Work)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// NeedLeaderElection returns false: the Runnable has an election of its own, and stands
// on every replica.
func (r *Runnable) NeedLeaderElection() bool { return false }

// Ready returns a check for Manager.AddReadyzCheck: whether the member may be counted on,
// within a second. Liveness needs no check of the cluster, since a restart mends nothing there:
// pass healthz.Ping to Manager.AddHealthzCheck.
func Ready(node *cluster.Node) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		return node.Ready(ctx)
	}
}
