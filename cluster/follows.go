package cluster

import (
	"context"

	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// askFollows asks another voter which leader it follows.
func (n *Node) askFollows(ctx context.Context, q wire.FollowsRequest) (a wire.FollowsAnswer, err error) {
	to, err := n.locate(q.Voter)
	if err != nil {
		return a, err
	}
	err = n.peers.AskInto(ctx, to, wire.Follows, wire.Marshal(&q), &a)
	return a, err
}

// answerFollows answers a voter that asks which leader this voter follows.
func (n *Node) answerFollows(q *stream.Request) {
	var req wire.FollowsRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	if r := n.seat.Current(); r != nil {
		if a, ok := r.Follows(req); ok {
			q.Answer(wire.CodeOK, wire.Marshal(&a))
			return
		}
	}
	q.Answer(wire.CodeNo, nil)
}
