package cluster

import "fmt"

// String names the node. fmt would print the fields of a Node besides, and those of
// its Config without asking Config's String, with the secrets.
func (n *Node) String() string {
	return fmt.Sprintf("cluster.Node{Name: %q, Addr: %q}", n.self.Name, n.self.Addr)
}

// GoString is String, so that %#v prints no secret either.
func (n *Node) GoString() string { return n.String() }
