package main

import "github.com/wardmote/wardmote/fence"

// A member tells its parent what happens to it, each event a line of JSON on its
// standard output. The parent tells it little, each command a line on its
// standard input; the end of the input is the parent's death.

type kind string

const (
	listening kind = "listening" // Detail: the address that others may join at
	ready     kind = "ready"     // the cluster grants locks, and this member may ask for them
	status    kind = "status"    // Voter, Leads, Writes: four times a second
	elected   kind = "elected"   // this member is the scheduler, under Token
	deposed   kind = "deposed"   // it no longer is, for the reason in Detail
	job       kind = "job"       // the scheduler ran one, under Token
	owns      kind = "owns"      // this member owns Shard under Token, and has shown that to the fence
	gave      kind = "gave"      // it no longer does, for the reason in Detail
	preparing kind = "preparing" // a slow write to Shard is being prepared, as commandSlow asked for
	refused   kind = "refused"   // the fence, which has seen Seen, refused a write to Shard under Token
	failed    kind = "failed"    // the member gives up, for the reason in Detail
	exited    kind = "exited"    // said by the parent: the process is gone
)

type event struct {
	Kind    kind        `json:"kind"`
	Member  string      `json:"member"`
	Shard   int         `json:"shard,omitempty"`
	Token   fence.Token `json:"token,omitzero"`
	Seen    fence.Token `json:"seen,omitzero"`
	Trusted bool        `json:"trusted,omitempty"` // refused: the lock was trusted still, which must not be
	Voter   bool        `json:"voter,omitempty"`
	Leads   bool        `json:"leads,omitempty"` // the voters, as raft's leader
	Writes  int         `json:"writes,omitempty"`
	Detail  string      `json:"detail,omitempty"`
}

// commandSlow asks a member to take its time for the next write to each shard,
// so that a pause is sure to come in the middle of one.
const commandSlow = "slow"
