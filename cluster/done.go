package cluster

import "context"

// Done returns a channel that is closed when the node ends, by Stop, by Leave or by a
// failure after which the node can take no part in the cluster. Err then has the cause.
// By Stop and Leave the channel is closed before they return, once all locks of this
// process have ended.
//
// A program that holds a failed node waits in vain: end the process, so that a
// supervisor starts it again.
func (n *Node) Done() <-chan struct{} { return n.ctx.Done() }

// Err returns nil while the node runs; then ErrStopped after Stop or Leave, or the
// failure that ended the node. A member that only lost its quorum, or its vote, runs on.
func (n *Node) Err() error {
	if n.ctx.Err() == nil {
		return nil
	}
	return context.Cause(n.ctx)
}

// Check returns the first value of cfg that Start would refuse, as a *ConfigError, or
// nil. Check starts nothing and asks nobody: a port in use, a damaged Dir or a host
// without an address are found by Start alone.
func (cfg Config) Check() error {
	_, err := cfg.withDefaults()
	return err
}
