package main

import (
	"time"

	"github.com/wardmote/wardmote/fence"
)

// A member sends events to its parent: lines of JSON on the member's standard
// output. The parent sends commands to the member: lines on the member's standard
// input. The end of the standard input means that the parent is dead.

// kind names an event. The comments give the fields that the event fills.
type kind string

const (
	listening kind = "listening" // the member listens; Detail is the address to join
	serving   kind = "serving"   // the member serves its live page; Detail is the address
	ready     kind = "ready"     // the cluster grants locks, and the member may ask for locks
	status    kind = "status"    // four times a second: Voter, Leads, Writes, Trust
	elected   kind = "elected"   // the member is the scheduler, under Token
	deposed   kind = "deposed"   // the member is no longer the scheduler; Detail is the reason
	job       kind = "job"       // the scheduler ran a job, under Token
	owns      kind = "owns"      // the member owns Shard and has shown Token to the fence
	gaveUp    kind = "gave up"   // the member no longer owns Shard; Detail is the reason
	preparing kind = "preparing" // after commandSlow: the member prepares a slow write to Shard
	refused   kind = "refused"   // the fence refused a write to Shard under Token; Seen is its mark
	failed    kind = "failed"    // the member gives up; Detail is the reason
	exited    kind = "exited"    // from the parent: the process is gone
)

type event struct {
	Kind    kind          `json:"kind"`
	Member  string        `json:"member"`
	Shard   int           `json:"shard,omitempty"`
	Token   fence.Token   `json:"token,omitzero"`
	Seen    fence.Token   `json:"seen,omitzero"`
	Trusted bool          `json:"trusted,omitempty"` // in refused: the lock was still trusted, a broken promise
	Voter   bool          `json:"voter,omitempty"`
	Leads   bool          `json:"leads,omitempty"` // the member is the raft leader
	Writes  int           `json:"writes,omitempty"`
	Trust   time.Duration `json:"trust,omitempty"` // for how long the member may trust its locks
	Detail  string        `json:"detail,omitempty"`
}

const (
	// commandSlow asks a member to prepare the next write to each shard slowly, so
	// that a pause is sure to come in the middle of the writes.
	commandSlow = "slow"

	// commandCut cuts the member's network, and commandHeal heals it.
	commandCut  = "cut"
	commandHeal = "heal"
)
