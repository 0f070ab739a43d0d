package wire

// LineageRequest tells the asker's cluster to a member of another cluster of the
// same name, and asks for that member's. The two then know the same, whichever side
// met the other.
type LineageRequest struct {
	From LineageOf
}

// LineageAnswer is the answering member's side.
type LineageAnswer struct {
	From LineageOf
}

// LineageOf is a member with its knowledge of its cluster.
type LineageOf struct {
	Name     string
	Boot     uint64
	Addr     string    // as the member advertises it
	Founding *Founding // nil if the member is in no cluster
	Granted  bool      // the cluster has granted locks, as far as the member knows
	Votes    bool      // the member runs raft in the cluster
}
