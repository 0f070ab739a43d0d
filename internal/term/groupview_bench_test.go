package term_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// BenchmarkMapsOfAGroup is the leader's work for the maps of n members, each a caller of
// a group of 1,024 shards: an op is a caller that leaves and one that comes, the plans
// for both, and the moves. The bytes are for one member and change, the time until
// the last reader has the answer.
func BenchmarkMapsOfAGroup(b *testing.B) {
	for _, n := range []int{50, 300} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			tm, _ := benchTerm(b)
			decide := func(c machine.Command) machine.Outcome {
				done := make(chan machine.Outcome, 1)
				tm.Decide(c, func(o machine.Outcome, _ wire.Code) { done <- o })
				return <-done
			}
			id := func(i int) machine.SessionID { return machine.SessionID{2, byte(i), byte(i >> 8)} }
			const number = 1024
			hour := uint64(time.Hour / time.Millisecond) // so that no session needs beats
			decide(machine.Bound{Term: 1, TTL: hour})
			for i := range n {
				decide(machine.Open{Session: id(i), Client: fmt.Sprint("client-", i), Node: fmt.Sprint("node-", i), TTL: hour})
			}
			for i := range n - 1 {
				decide(machine.Enlist{Session: id(i), Seq: 1, Group: "g", Shards: number, Weight: 1})
			}
			for s := range number {
				decide(machine.Acquire{Session: id(s % n), Seq: uint64(100 + s), Key: machine.ShardKey("g", uint32(s))})
			}
			readers := &mapReaders{tm: tm}
			for range n {
				readers.start()
			}
			readers.await(b, tm)
			readers.reset()
			b.ResetTimer()
			b.ReportAllocs()
			for seq := uint64(5000); b.Loop(); seq += 2 {
				// The caller comes, gets a few shards, and goes again.
				decide(machine.Enlist{Session: id(n - 1), Seq: seq, Group: "g", Shards: number, Weight: 1})
				readers.await(b, tm)
				for s := range uint32(4) {
					key := machine.ShardKey("g", s)
					was, token := term.OwnerOf(tm, key)
					decide(machine.Acquire{Session: id(n - 1), Seq: seq*10 + uint64(s), Key: key})
					decide(machine.Release{Session: was, Token: token})
					_, token = term.OwnerOf(tm, key)
					decide(machine.Acquire{Session: was, Seq: seq*10 + uint64(s), Key: key})
					decide(machine.Release{Session: id(n - 1), Token: token})
				}
				decide(machine.Delist{Session: id(n - 1), Seq: seq})
				readers.await(b, tm)
			}
			b.StopTimer()
			slices.Sort(readers.late)
			group, owners := readers.bytes()
			b.ReportMetric(float64(group)/float64(n*b.N), "group-B/member")
			b.ReportMetric(float64(owners)/float64(n*b.N), "owners-B/member")
			b.ReportMetric(float64(readers.late[len(readers.late)*99/100].Microseconds())/1000, "late-p99-ms")
		})
	}
}

// mapReaders follow the group and its keys, as maps do.
type mapReaders struct {
	tm *term.Term

	mu            sync.Mutex
	group, owners int
	known         []uint64 // by reader: the group's version
	late          []time.Duration
}

func (r *mapReaders) start() {
	r.mu.Lock()
	i := len(r.known)
	r.known = append(r.known, 0)
	r.mu.Unlock()
	var read func(q replica.Query)
	read = func(q replica.Query) {
		r.tm.ReadEncoded(q, func(body []byte, c wire.Code) {
			var a replica.Answer
			if c != wire.CodeOK || wire.Unmarshal(body, &a) != nil {
				return
			}
			r.mu.Lock()
			r.group += len(body)
			r.known[i] = a.Group.Version
			r.mu.Unlock()
			go read(replica.Query{Group: "g", Version: a.Version, Since: a.Group.Version})
		})
	}
	var scan func(q replica.Scan)
	scan = func(q replica.Scan) {
		r.tm.ScanEncoded(q, func(body []byte, c wire.Code) {
			var a replica.Scanned
			if c != wire.CodeOK || wire.Unmarshal(body, &a) != nil {
				return
			}
			r.mu.Lock()
			r.owners += len(body)
			r.mu.Unlock()
			q.Since = a.Version
			go scan(q)
		})
	}
	read(replica.Query{Group: "g"})
	scan(replica.Scan{Prefix: "g/", Limit: replica.MaxScanned, Shards: true})
}

func (r *mapReaders) reset() {
	r.mu.Lock()
	r.group, r.owners, r.late = 0, 0, nil
	r.mu.Unlock()
}

func (r *mapReaders) bytes() (group, owners int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.group, r.owners
}

// await waits until every reader knows the group as it is when the planner has no more
// to do.
func (r *mapReaders) await(b *testing.B, tm *term.Term) {
	began := time.Now()
	for {
		version, orphans := term.GroupOf(tm, "g")
		r.mu.Lock()
		behind := slices.ContainsFunc(r.known, func(v uint64) bool { return v < version })
		r.mu.Unlock()
		if !behind && orphans == 0 {
			break
		}
		if time.Since(began) > time.Minute {
			b.Fatal("readers do not learn of the change")
		}
		time.Sleep(100 * time.Microsecond)
	}
	r.mu.Lock()
	r.late = append(r.late, time.Since(began))
	r.mu.Unlock()
}
