package term_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

func benchTerm(b *testing.B) (*term.Term, *term.Subscriber) {
	table := foundedTable()
	tm := term.New(term.Config{Log: soloLog{table}, Table: table, Term: 1, Logger: slog.New(slog.DiscardHandler)})
	tm.Start()
	b.Cleanup(tm.Stop)
	return tm, own(tm)
}

// Each iteration is an acquire and a release by a client of this node.
func BenchmarkPropose(b *testing.B) {
	tm, by := benchTerm(b)
	b.ReportAllocs()
	outcomes := make(chan machine.Outcome, 1)
	done := func(o machine.Outcome, c wire.Code) { outcomes <- o }
	for i := range b.N {
		seq := uint64(i + 1)
		tm.Propose(by, machine.Acquire{Session: sid(1), Seq: seq, Key: "invoices/1"}, done)
		o := <-outcomes
		tm.Propose(by, machine.Release{Session: sid(1), Token: o.Token, Seen: []uint64{seq}}, done)
		<-outcomes
	}
}

// Each iteration is 64 commands of members, arriving together.
func BenchmarkForwarded(b *testing.B) {
	tm, by := benchTerm(b)
	b.ReportAllocs()
	outcomes := make(chan machine.Outcome, 64)
	done := func(o machine.Outcome, c wire.Code) { outcomes <- o }
	seq := uint64(0)
	for range b.N {
		for range 64 {
			seq++
			tm.Forward(by, machine.AppendCommand(nil, machine.Acquire{Session: sid(1), Seq: seq, Key: "invoices/1", Spec: machine.Spec{Mode: machine.Shared}, Try: true}), done)
		}
		for range 64 {
			o := <-outcomes
			tm.Forward(by, machine.AppendCommand(nil, machine.Release{Session: sid(1), Token: o.Token, Seen: []uint64{seq}}), done)
		}
		for range 64 {
			<-outcomes
		}
	}
}

func BenchmarkRead(b *testing.B) {
	tm, by := benchTerm(b)
	tm.Propose(by, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}, func(machine.Outcome, wire.Code) {})
	time.Sleep(time.Millisecond)
	answers := make(chan replica.Answer, 1)
	b.ReportAllocs()
	for range b.N {
		tm.Read(replica.Query{Key: "k", Waiters: 10}, func(a replica.Answer, c wire.Code) { answers <- a })
		<-answers
	}
}

func BenchmarkReadEncoded(b *testing.B) {
	tm, by := benchTerm(b)
	tm.Propose(by, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}, func(machine.Outcome, wire.Code) {})
	time.Sleep(time.Millisecond)
	answers := make(chan []byte, 1)
	b.ReportAllocs()
	for range b.N {
		tm.ReadEncoded(replica.Query{Key: "k", Waiters: 10}, func(body []byte, c wire.Code) { answers <- body })
		<-answers
	}
}

// Each iteration is 1,000 beats, arriving together.
func BenchmarkBeat(b *testing.B) {
	const beats = 1000
	tm, by := benchTerm(b)
	codes := make(chan wire.Code, beats)
	done := func(c wire.Code) { codes <- c }
	b.ReportAllocs()
	for range b.N {
		for range beats {
			tm.Beat(by, sid(1), done)
		}
		for range beats {
			<-codes
		}
	}
}

// BenchmarkPlanOfTheLargestGroup is the work of the planner after a caller of a group of
// 16,384 shards and 1,000 callers has left: reading the group, the plan, and the Apply.
func BenchmarkPlanOfTheLargestGroup(b *testing.B) {
	tm, _ := benchTerm(b)
	decide := func(c machine.Command) {
		done := make(chan machine.Outcome, 1)
		tm.Decide(c, func(o machine.Outcome, _ wire.Code) { done <- o })
		if o := <-done; o.Code != machine.OK {
			b.Fatalf("%#v: %+v", c, o)
		}
	}
	id := func(i int) machine.SessionID { return machine.SessionID{2, byte(i), byte(i >> 8)} }
	for i := range machine.MaxCallers {
		decide(machine.Open{Session: id(i), Client: "c", Node: fmt.Sprint("n", i%4), TTL: tm.Bound()})
		decide(machine.Enlist{Session: id(i), Seq: 1, Group: "g", Shards: machine.MaxShards, Weight: 1})
	}
	orphans := func() uint32 {
		a := make(chan replica.Answer, 1)
		tm.Read(replica.Query{Group: "g"}, func(r replica.Answer, _ wire.Code) { a <- r })
		return (<-a).Group.Orphans
	}
	for orphans() > 0 {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		decide(machine.Delist{Session: id(7), Seq: seq})
		for orphans() > 0 {
			time.Sleep(100 * time.Microsecond)
		}
		decide(machine.Enlist{Session: id(7), Seq: seq + 1, Group: "g", Shards: machine.MaxShards, Weight: 1})
	}
}
