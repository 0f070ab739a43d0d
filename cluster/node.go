package cluster

import "github.com/wardmote/wardmote/internal/replica"

// Node is this process's part in a cluster.
type Node struct{}

// Replica is what package locks works on.
func (n *Node) Replica() replica.Replica { return nil }
