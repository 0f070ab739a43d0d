package meter

// OfClient returns the counts of a *locks.Client, and ReadClient its figures. Package
// locks sets both when the program starts. They stand here, and not as methods of the
// client, because users cannot name the types.
var (
	OfClient   func(client any) *Client
	ReadClient func(client any) ClientFigures
)

// OfNode returns the counts of a *cluster.Node, and ReadNode its figures. Package
// cluster sets both when the program starts.
var (
	OfNode   func(node any) *Node
	ReadNode func(node any) Figures
)
