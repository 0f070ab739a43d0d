package consensus

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// TestAServerIsNotAskedTwice: a message without entries that the server has acknowledged is
// answered in its place, but not for long, not without a living server, and no other.
func TestAServerIsNotAskedTwice(t *testing.T) {
	message := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6}
	heartbeat := raft.AppendEntriesRequest{Term: 3}
	yes := raft.AppendEntriesResponse{Term: 3, LastLog: 9, Success: true}
	with := func(f func(*raft.AppendEntriesRequest)) raft.AppendEntriesRequest {
		m := message
		f(&m)
		return m
	}
	for name, tc := range map[string]struct {
		then func(*told)
		ask  raft.AppendEntriesRequest
		id   raft.ServerID
		want bool
	}{
		"the same":         {nil, message, "a", true},
		"a heartbeat":      {nil, heartbeat, "a", false},
		"another server":   {nil, message, "b", false},
		"another term":     {nil, with(func(m *raft.AppendEntriesRequest) { m.Term++ }), "a", false},
		"another entry":    {nil, with(func(m *raft.AppendEntriesRequest) { m.PrevLogEntry++ }), "a", false},
		"another log":      {nil, with(func(m *raft.AppendEntriesRequest) { m.PrevLogTerm++ }), "a", false},
		"a later commit":   {nil, with(func(m *raft.AppendEntriesRequest) { m.LeaderCommitIndex++ }), "a", false},
		"with entries":     {nil, with(func(m *raft.AppendEntriesRequest) { m.Entries = []*raft.Log{{}} }), "a", false},
		"no sign of life":  {func(*told) { time.Sleep(timing.ToldContact) }, message, "a", false},
		"a failure since":  {func(x *told) { x.note("a", &heartbeat, &yes, time.Now(), errors.New("gone")) }, message, "a", false},
		"a refusal since":  {func(x *told) { x.note("a", &message, &raft.AppendEntriesResponse{Term: 3}, time.Now(), nil) }, message, "a", false},
		"a later term":     {func(x *told) { x.note("a", &heartbeat, &raft.AppendEntriesResponse{Term: 4}, time.Now(), nil) }, message, "a", false},
		"entries since":    {func(x *told) { m := message; m.Entries = []*raft.Log{{}}; x.note("a", &m, &yes, time.Now(), nil) }, message, "a", false},
		"heartbeats since": {func(x *told) { beats(x, &heartbeat, timing.Told/2) }, message, "a", true},
		"too long ago":     {func(x *told) { beats(x, &heartbeat, timing.Told) }, message, "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTold()
				x.note("a", &message, &yes, time.Now(), nil)
				if tc.then != nil {
					tc.then(x)
				}
				var resp raft.AppendEntriesResponse
				if got := x.answers(tc.id, &tc.ask, &resp); got != tc.want || got && (resp.Term != 3 || resp.LastLog != 9 || !resp.Success) {
					t.Errorf("%t, %+v", got, resp)
				}
			})
		})
	}
}

// beats has the server answer heartbeats for so long.
func beats(x *told, heartbeat *raft.AppendEntriesRequest, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(timing.ToldContact / 2)
		x.note("a", heartbeat, &raft.AppendEntriesResponse{Term: 3, Success: true}, time.Now(), nil)
	}
}
