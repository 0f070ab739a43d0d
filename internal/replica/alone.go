package replica

import "context"

// Alone starts a *cluster.Node that is a cluster of its own, in memory and without a
// port, and that waits for no survivor of an earlier cluster: nobody outside of the
// process can ever have held one of its locks. Package cluster sets Alone when the
// program starts. It stands here, and not in the configuration, because a program
// with other members must never skip the wait.
var Alone func(ctx context.Context) (node any, err error)
