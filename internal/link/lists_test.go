package link

import (
	"reflect"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// Lists arrive as the leader gave them.
func TestListsAreForwarded(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		values := replica.ValuesPage{Values: []machine.KeyValue{{Key: "k", Value: "v", Token: 7, Unclean: true}}, More: true}
		sessions := replica.SessionsPage{
			Sessions: []replica.ListedSession{{Ref: sid(1).Ref(), Client: "c", Node: "n", TTL: 1000, Keys: 2}},
			More:     true, NextFrom: sid(2).Ref(),
		}
		a.setAnswer(func(q *stream.Request) {
			switch q.Type {
			case wire.Values:
				q.Answer(wire.CodeOK, wire.Marshal(&values))
			case wire.Sessions:
				q.Answer(wire.CodeOK, wire.Marshal(&sessions))
			}
		})
		vq := replica.ValuesQuery{Prefix: "k", From: "k/1", Limit: 10}
		if got, err := s.k.Values(s.within(time.Second), vq); err != nil || !reflect.DeepEqual(got, values) {
			t.Errorf("values %+v, %v", got, err)
		}
		sq := replica.SessionsQuery{From: sid(3).Ref(), Limit: 10}
		if got, err := s.k.Sessions(s.within(time.Second), sq); err != nil || !reflect.DeepEqual(got, sessions) {
			t.Errorf("sessions %+v, %v", got, err)
		}
		var gotV replica.ValuesQuery
		var gotS replica.SessionsQuery
		if wire.Unmarshal(a.requests[0].Body, &gotV) != nil || gotV != vq || wire.Unmarshal(a.requests[1].Body, &gotS) != nil || gotS != sq {
			t.Errorf("the leader received %+v, %+v", gotV, gotS)
		}
	})
}
