package documents

// Why is the document why.json: the holders of a key, its waiters, and the locks that
// the holders themselves wait for, as far as the waits go.
type Why struct {
	Head
	Key Key `json:"key"`

	// Text explains the state of the key in sentences.
	Text []string `json:"text"`

	// Nodes and Edges are the waits-for graph, from the key on. Each edge leads from a
	// node to a node that the first one waits for: from a key to the sessions of its
	// holders, and from a session to the keys that it waits for.
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`

	// Cycle says that the graph has a cycle. A session waits with one goroutine and holds
	// with another, so a cycle is a suspicion and no proof of a deadlock.
	Cycle bool `json:"cycle,omitempty"`

	// Cut says that the graph goes on: the bound of nodes is reached.
	Cut bool `json:"cut,omitempty"`
}

// Node is a key or a session of the waits-for graph.
type Node struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"` // key, session
	Name  string `json:"name"` // the key, or the name of the client
	Node  string `json:"node,omitempty"`
	Queue int    `json:"queue,omitempty"` // of a key
}

// Edge is a wait of the waits-for graph.
type Edge struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Kind  string    `json:"kind"`            // held-by, waits-for
	Token Number    `json:"token,omitempty"` // held-by
	For   *Duration `json:"for,omitempty"`
}
