package scale

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/simnet"
)

// traffic is the work of members in a second.
type traffic struct {
	leaderSent, leaderReceived rate
	thinSent, thinReceived     rate          // of one thin member, on average
	beats                      float64       // confirmed, of all sessions
	rounds, entries            float64       // of the leader
	cpu                        time.Duration // of all members
}

type rate struct{ bytes, messages, packets float64 }

func rateOf(t simnet.Traffic, seconds float64) rate {
	return rate{float64(t.Bytes()) / seconds, float64(t.Messages()) / seconds, float64(t.Packets) / seconds}
}

// count is a reading of all counters.
type count struct {
	sent, received         []simnet.Traffic // by resident
	beats, rounds, entries uint64
	cpu                    time.Duration
}

func (w *town) count(leader int) (c count) {
	for i, r := range w.residents {
		sent, received := w.net.Traffic(host(i))
		c.sent, c.received = append(c.sent, sent), append(c.received, received)
		if r != nil {
			c.beats += meter.OfClient(r.client).Beats.Read().Count()
		}
	}
	m := meter.OfNode(w.residents[leader].node)
	c.rounds, c.entries = m.Rounds.Read().Count(), m.Commits.Read().Count()
	c.cpu = cpu(w.t)
	return c
}

// traffic measures a time in which each thin member works.
func (w *town) traffic(over time.Duration, work func(*resident)) (x traffic) {
	leader := w.leader()
	var works sync.WaitGroup
	before := w.count(leader)
	for _, r := range w.residents[voters:] {
		works.Go(func() { work(r) })
	}
	time.Sleep(over)
	after := w.count(leader)
	works.Wait()
	seconds := over.Seconds()
	x.cpu = time.Duration(float64(after.cpu-before.cpu) / seconds)
	x.beats = float64(after.beats-before.beats) / seconds
	x.rounds = float64(after.rounds-before.rounds) / seconds
	x.entries = float64(after.entries-before.entries) / seconds
	var sent, received simnet.Traffic
	for i := range w.residents {
		s, r := after.sent[i].Sub(before.sent[i]), after.received[i].Sub(before.received[i])
		if i == leader {
			x.leaderSent, x.leaderReceived = rateOf(s, seconds), rateOf(r, seconds)
		}
		if i >= voters {
			sent, received = sent.Add(s), received.Add(r)
		}
	}
	n := float64(len(w.residents) - voters)
	x.thinSent, x.thinReceived = rateOf(sent, n*seconds), rateOf(received, n*seconds)
	return x
}

// work takes and releases a lock after a part of ten seconds that differs from member to
// member.
func (w *town) work(r *resident) {
	sum := 0
	for _, c := range r.name {
		sum = sum*31 + int(c)
	}
	time.Sleep(time.Duration(sum%9900) * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := r.client.Acquire(ctx, r.name+"/work")
	if err == nil {
		err = l.Release(ctx)
	}
	if err != nil {
		w.t.Errorf("%s: %v", r.name, err)
	}
}

// weigh returns the goroutines of a member, and the bytes of its heap and stacks, the
// simulated network included.
func (w *town) weigh() (goroutines, memory float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := float64(len(w.residents))
	return float64(runtime.NumGoroutine()) / n, float64(m.HeapAlloc+m.StackInuse) / n
}
