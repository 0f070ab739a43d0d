package lockstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// reports makes every report of a client, and checks that none waited for anything: a wait
// takes time in a bubble, and the work of the processor does not.
func reports(t *testing.T, c *locks.Client) locks.Report {
	t.Helper()
	begun := time.Now()
	r := c.Report()
	keys := c.LocalKeys("", "", 0)
	sessions := c.LocalSessions("", 0)
	names := c.LocalNames("", 0)
	shards := c.LocalShards("work", 0, 0)
	if took := time.Since(begun); took != 0 {
		t.Errorf("the reports took %v", took)
	}
	for _, v := range []any{r, keys, sessions, names, shards} {
		if _, err := json.Marshal(v); err != nil {
			t.Error(err)
		}
	}
	return r
}

// seen returns "N of M voters seen" of a reason.
func seen(reason string) string {
	i, j := strings.Index(reason, ": "), strings.Index(reason, " voters seen")
	if i < 0 || j < i {
		return reason
	}
	return reason[i+2 : j]
}

// TestReportsWaitForNobody: with a leader that stands still, with a store that hangs, without
// a quorum and after the end, everything that a member knows by itself is told at once.
func TestReportsWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 5, lockstest.Config(func(i int, cfg *cluster.Config) { cfg.Voting.Thin = i >= 3 }))
		clients := make([]*locks.Client, 4)
		for i := range clients {
			clients[i] = c.Client(i)
			for k := range 3 {
				if _, err := clients[i].Acquire(context.Background(), fmt.Sprintf("key-%d-%d", i, k)); err != nil {
					t.Fatal(err)
				}
			}
		}
		work, end := context.WithCancel(context.Background())
		go func() {
			_ = clients[3].Spread(work, "work", 4, func(ctx context.Context, _ int, _ *locks.Lock) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(5 * time.Second)
		idle := c.Node(4).Report() // without a client
		if s := idle.Summary; s == nil || s.Source != "leader" || s.Keys != 16 || s.Shards != 4 || s.Groups != 1 || s.Members != 5 || time.Duration(s.Age) > 2*time.Second {
			t.Errorf("the idle member's summary is %+v", s)
		}
		if h := idle.Health; !h.Quorum || !h.Granting || h.Reason != "" {
			t.Errorf("the idle member's health is %+v", h)
		}
		if r := reports(t, clients[3]); r.Node.Summary == nil || r.HoldsTotal != 7 || len(r.Spreads) != 1 || len(r.Spreads[0].Mine) != 4 {
			t.Errorf("the thin member reports %+v", r)
		}
		if r := reports(t, clients[0]); r.Node.Summary == nil || r.Node.Summary.Source != "table" || r.Node.Summary.Keys != 16 {
			t.Errorf("the voter reports %+v", r.Node.Summary)
		}
		if p := clients[1].LocalShards("work", 0, 0); p.Shards != 4 || len(p.Owners) != 4 || p.Owners[3].Node != c.Node(3).Name() {
			t.Errorf("shards of a voter: %+v", p)
		}

		leader := 0
		for i := range 3 {
			if c.Node(i).Report().Own.Role == "leader" {
				leader = i
			}
		}
		c.Freeze(leader)
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			for i, client := range clients {
				if i != leader {
					reports(t, client)
				}
			}
		}
		c.Thaw(leader)
		time.Sleep(10 * time.Second)
		for i := range 3 {
			c.HangStore(i)
		}
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			for _, client := range clients {
				reports(t, client)
			}
		}
		for i := range 3 {
			c.HealStore(i)
		}
		end()
		time.Sleep(20 * time.Second)
		for _, client := range clients {
			if r := reports(t, client); !r.Node.Health.Quorum {
				t.Errorf("no quorum after the faults: %+v", r.Node.Health)
			}
		}

		c.Kill(0)
		c.Kill(1)
		killed := time.Now()
		for time.Since(killed) < 30*time.Second {
			time.Sleep(300 * time.Millisecond)
			for _, i := range []int{2, 3} {
				r := reports(t, clients[i])
				h := r.Node.Health
				if since := time.Since(killed); since > 2*time.Second && (h.Quorum || seen(h.Reason) != "1 of 3") {
					t.Errorf("member %d, %v after two voters were killed: quorum %t, %q", i, since, h.Quorum, h.Reason)
				}
				if s := r.Node.Summary; s == nil || i == 3 && time.Duration(s.Age) < time.Since(killed)-3*time.Second {
					t.Errorf("member %d has the summary %+v", i, s)
				}
			}
		}
		for _, i := range []int{2, 3} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = clients[i].Close(ctx)
			cancel()
			_ = c.Node(i).Stop()
			if r := reports(t, clients[i]); r.Node.Own.Ended == "" {
				t.Error("the report of an ended node does not say so")
			}
		}
	})
}
