package consensus

import "time"

// Heard returns the time of the last message from the leader; zero if there was
// none.
func (r *Raft) Heard() time.Time { return r.raft.LastContact() }
