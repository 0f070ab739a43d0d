package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file asks the members of other clusters that this node has met. The questions
// run side by side: a member can invent some hundred processes at addresses where
// nothing answers, and each word holds the first grant back until the process was
// asked. Asked one by one, for timing.Dial each, the inventions would hold the grant for
// minutes. The answers are acted on one by one, each by what this node is then.

// maxMeetingsAsked bounds the processes asked at a time.
const maxMeetingsAsked = 64

// runMeetings asks the members met, and acts by settle, until the node ends.
func (n *Node) runMeetings() {
	for n.ctx.Err() == nil {
		list, wait := n.meetings.due(time.Now())
		if len(list) > 0 {
			n.lookInto(list)
			continue
		}
		var again <-chan time.Time
		if n.link.Away() { // retired: the cluster may answer after all
			if wait < 0 || wait > timing.LineageAgain {
				wait = timing.LineageAgain
			}
			n.resume(n.ctx)
		}
		if wait >= 0 {
			again = time.After(wait)
		}
		select {
		case <-n.meetings.news:
		case <-again:
		case <-n.ctx.Done():
		}
	}
}

// lookInto asks members of other clusters once, for timing.Dial, and acts by the
// answers.
func (n *Node) lookInto(list []member.Process) {
	ctx, cancel := context.WithTimeout(n.ctx, timing.Dial)
	defer cancel()
	answers := make([]wire.LineageOf, len(list))
	var asking sync.WaitGroup
	for i, p := range list {
		asking.Go(func() { answers[i] = n.askLineage(ctx, p) })
	}
	asking.Wait()
	for i, p := range list {
		if answers[i].Founding != nil {
			n.judgeMeeting(p, answers[i])
		}
		n.meetings.tried(p)
	}
}

// askLineage asks a process for its cluster. The answer has no founding if the process
// has not answered, or is in no cluster.
func (n *Node) askLineage(ctx context.Context, p member.Process) (other wire.LineageOf) {
	own := n.lineage()
	if own.Founding == nil {
		return other
	}
	var answer wire.LineageAnswer
	err := n.across.AskInto(ctx, p, wire.Lineage, wire.Marshal(&wire.LineageRequest{From: own}), &answer)
	if err != nil || answer.From.Founding == nil || founding.Check(*answer.From.Founding) != nil {
		return other // unsettled: the verdict stays
	}
	if answer.From.Name != p.Name || answer.From.Boot != p.Boot {
		return other
	}
	return answer.From
}

// judgeMeeting acts by the answer of a process.
func (n *Node) judgeMeeting(p member.Process, other wire.LineageOf) {
	own := n.lineage() // an answer before may have moved this node
	switch {
	case own.Founding == nil:
		return
	case other.Founding.Cluster == own.Founding.Cluster:
		n.meetings.over(p)
		n.conflicts.settled(p)
		return
	}
	n.meetings.met(p, "", true)
	verdict := settle(own, other)
	if verdict == yield {
		verdict = n.yieldTo(p, own, other)
	} else if n.follow(p, own, other) {
		return
	}
	n.meetings.judged(p, verdict)
	n.tellMeeting(p, own, other, verdict)
}
