package scale

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// TestManyMembers holds the counts of messages against the model of docs/scale.md, and the
// promises that do not depend on the number of members: every member is served within a
// second of the election, whether the leader is killed or cut off, and no living member
// loses a lock. The other figures are printed.
func TestManyMembers(t *testing.T) {
	sizes := []int{20}
	switch {
	case os.Getenv("WARDMOTE_FULL") == "scale":
		sizes = []int{100, 300, 600, 1000}
	case testrounds.Full():
		sizes = []int{100, 300}[:testrounds.Whole(1, 2)]
	}
	for _, thin := range sizes {
		t.Run(fmt.Sprint(thin), func(t *testing.T) {
			began := cpu(t)
			f := figures{thin: thin}
			inTown(t, thin, func(w *town) {
				f.join = cpu(t) - began
				w.measure(&f)
			})
			if t.Failed() {
				return
			}
			f.check(t)
			if testing.Verbose() {
				f.print()
			}
		})
	}
}

// figures are the measurements of a town.
type figures struct {
	thin       int
	join       time.Duration // CPU time of all members, until each holds its locks
	goroutines float64       // per member
	memory     float64       // bytes of heap and stacks per member
	idle, load traffic
	storms     []storm
}

func (w *town) measure(f *figures) {
	time.Sleep(30*time.Second + time.Duration(f.thin)*300*time.Millisecond) // the last words about newcomers
	f.idle = w.traffic(30*time.Second, func(*resident) {})
	f.goroutines, f.memory = w.weigh()
	f.load = w.traffic(10*time.Second, w.work)
	leader := w.leader()
	f.storms = append(f.storms, w.storm("killed", leader, func() { w.kill(leader) }))
	w.residents[leader] = w.settle(leader)
	w.ready(w.residents[leader])
	w.residents[leader].hold(w.t)
	time.Sleep(10 * time.Second)
	leader = w.leader()
	f.storms = append(f.storms, w.storm("cut off", leader, func() { w.net.Isolate(host(leader)) }))
}

// check holds the counts against the model.
func (f *figures) check(t *testing.T) {
	sessions := float64(f.thin + voters)
	idle := f.idle
	beats := sessions * 3 / ttl.Seconds()
	if idle.beats < 0.98*beats || idle.beats > 1.02*beats {
		t.Errorf("%.1f beats a second, want %.1f: three in a TTL of each session", idle.beats, beats)
	}
	if most := min(beats, 100); idle.rounds > 1.02*most {
		t.Errorf("%.1f rounds a second for %.1f beats", idle.rounds, beats)
	}
	if idle.entries != 0 {
		t.Errorf("%.2f entries of the log a second in an idle cluster", idle.entries)
	}
	if p := idle.thinSent.packets; p < 1.9 || p > 2.3 {
		t.Errorf("a thin member sends %.2f packets a second, want 2: a ping and an answer", p)
	}
	if m := idle.thinSent.messages - idle.thinSent.packets; m < 0.3 || m > 1 {
		t.Errorf("a thin member writes %.2f times a second to its streams, want 0.3 beats and some questions", m)
	}
	// The answer to each beat, two questions of each round, raft's heartbeats, gossip.
	if m, most := idle.leaderSent.messages, beats+2*idle.rounds+17+sessions/100; m > most {
		t.Errorf("the leader sends %.1f messages a second, want %.1f at most", m, most)
	}
	for _, s := range f.storms {
		if s.lost != 0 {
			t.Errorf("%s: %d locks of living members were lost", s.name, s.lost)
		}
		if s.all > time.Second {
			t.Errorf("%s: the last member is served %v after the election", s.name, s.all)
		}
		if each := float64(s.messages) / sessions; each > 40 {
			t.Errorf("%s: %.1f messages for each member", s.name, each)
		}
	}
}

// print prints rows of tables in Markdown, as docs/scale.md has them.
func (f *figures) print() {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
	members := f.thin + voters
	fmt.Printf("| members | state | CPU of all, ms/s | leader: messages/s sent, received | leader: kB/s sent, received | thin: messages/s sent, received | thin: B/s sent, received | beats/s | rounds/s |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, x := range []struct {
		state string
		traffic
	}{{"idle", f.idle}, {"load", f.load}} {
		fmt.Printf("| %d | %s | %s | %.0f, %.0f | %.1f, %.1f | %.1f, %.1f | %.0f, %.0f | %.1f | %.1f |\n", members, x.state, ms(x.cpu),
			x.leaderSent.messages, x.leaderReceived.messages, x.leaderSent.bytes/1000, x.leaderReceived.bytes/1000,
			x.thinSent.messages, x.thinReceived.messages, x.thinSent.bytes, x.thinReceived.bytes, x.beats, x.rounds)
	}
	fmt.Printf("\n| members | CPU to start all, s | goroutines each | kB each |\n|---|---|---|---|\n| %d | %.1f | %.0f | %.0f |\n\n",
		members, f.join.Seconds(), f.goroutines, f.memory/1000)
	fmt.Printf("| members | leader | serves after, ms | then half, 90 %%, all are served, ms | locks lost | messages, kB | longest Acquire, ms | CPU of all, ms |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range f.storms {
		fmt.Printf("| %d | %s | %s | %s, %s, %s | %d | %d, %d | %s | %s |\n", members, s.name, ms(s.serves),
			ms(s.median), ms(s.most), ms(s.all), s.lost, s.messages, s.bytes/1000, ms(s.gap), ms(s.cpu))
	}
	fmt.Println()
}
