package machine

import (
	"fmt"
	"slices"
	"testing"
)

// TestMuchIsGrantedInSlices: a step grants MaxAdmitted waiters and those of one queue more, a
// restored table grants the same ones, and in the end nobody is left.
func TestMuchIsGrantedInSlices(t *testing.T) {
	ended := setBeforeReaders(t)
	ended.name, ended.c = "the end of a session before readers", Close{Session: session16("a")}
	for _, tt := range []costly{treeOverCrowd(t), setBeforeReaders(t), ended, liftOfCrowd(t), setsBehindOne(t)} {
		t.Run(tt.name, func(t *testing.T) {
			s, r, c, left := tt.s, must(restored(tt.s)), tt.c, tt.s.Counts().Waiters
			for steps := 1; ; steps++ {
				out, events := s.Apply(c)
				out2, events2 := r.Apply(c)
				if out2.Code != out.Code || !slices.Equal(events, events2) {
					t.Fatalf("step %d: %+v and %d events, restored %+v and %d", steps, out, len(events), out2, len(events2))
				}
				granted := left - s.Counts().Waiters
				if left -= granted; granted == 0 || granted > MaxAdmitted+readersEach {
					t.Fatalf("step %d grants %d keys", steps, granted)
				}
				if told := count(events, EventPutOff) > 0; s.HasPutOff() != (left > 0) || told != (steps == 1) || steps > 1 && (out.Code == Unfinished) != (left > 0) {
					t.Fatalf("step %d: code %d, told %t, %d wait", steps, out.Code, told, left)
				}
				if left == 0 {
					break
				}
				if steps%4 == 0 { // an image takes a while
					r = must(restored(r))
				}
				c = AdmitSlice{}
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			if s.Digest() != r.Digest() {
				t.Error("the tables differ")
			}
		})
	}
}

const readersEach = 20

// setsBehindOne is the release of a key for which sets wait.
func setsBehindOne(t testing.TB) costly {
	a, b := session16("a"), session16("b")
	s := sessionsIn(t, a, b)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	for i := range uint64(500) {
		keys := []string{"k"}
		for j := range readersEach - 1 {
			keys = append(keys, fmt.Sprintf("own/%03d/%02d", i, j))
		}
		apply(t, s, Acquire{Session: b, Seq: i + 1, Keys: keys, Spec: Spec{Mode: Shared}}, Queued)
	}
	return costly{name: "the release of a key before sets", s: s, c: Release{Session: a, Token: out.Token}, work: 500 * readersEach}
}

// setBeforeReaders is the release of many keys with readers at each.
func setBeforeReaders(t testing.TB) costly {
	a, b := session16("a"), session16("b")
	s := sessionsIn(t, a, b)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: setOf(0)}, Granted)
	seq := uint64(0)
	for _, key := range setOf(0) {
		for range readersEach {
			seq++
			apply(t, s, Acquire{Session: b, Seq: seq, Key: key, Spec: Spec{Mode: Shared}}, Queued)
		}
	}
	return costly{name: "the release of a set before readers of each key", s: s, c: Release{Session: a, Token: out.Token}, work: MaxKeys * readersEach}
}

// liftOfCrowd is the end of the founding wait before waiters for many keys.
func liftOfCrowd(t testing.TB) costly {
	a := session16("a")
	s := New()
	apply(t, s, Found{Cluster: ClusterID{1}, Floor: 1, TTL: 1000}, OK)
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	for i := range uint64(2 * MaxWaiters) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: fmt.Sprint("k", i)}, Queued)
	}
	return costly{name: "the end of the founding wait", s: s, c: Lift{}, work: 2 * MaxWaiters}
}

// TestTheListIsBounded: above MaxPutOff visits, all queues are looked at.
func TestTheListIsBounded(t *testing.T) {
	a, b := session16("a"), session16("b")
	s := sessionsIn(t, a, b)
	s.admits = 0
	for i := range uint64(MaxPutOff + 9) {
		key := fmt.Sprint("k", i)
		out, _ := apply(t, s, Acquire{Session: a, Seq: i + 1, Key: key}, Granted)
		apply(t, s, Acquire{Session: b, Seq: i + 1, Key: key}, Queued)
		apply(t, s, Release{Session: a, Token: out.Token}, OK)
		if n := len(s.later); n > MaxPutOff {
			t.Fatalf("%d visits are put off", n)
		}
	}
	s.admits = MaxAdmitted
	for s.HasPutOff() {
		s.Apply(AdmitSlice{})
	}
	if n := s.Counts(); n.Waiters != 0 {
		t.Errorf("%+v", n)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestPutOffQueuesAreFew: whoever gives up a tree again and again, above waiters that go on
// waiting for another holder, has their queues put off once for each slice that looks at them.
func TestPutOffQueuesAreFew(t *testing.T) {
	a, b, c := session16("a"), session16("b"), session16("c")
	s := sessionsIn(t, a, b, c)
	tree := Acquire{Session: a, Seq: 1, Key: "t", Spec: Spec{Mode: Shared, Tree: true}}
	kept, _ := apply(t, s, tree, Granted)
	const waiters = 2 * MaxWaiters
	for i := range uint64(waiters) {
		apply(t, s, Acquire{Session: c, Seq: i + 1, Key: fmt.Sprint("t/", i), Spec: Spec{Mode: Exclusive}}, Queued)
	}
	most := 0
	tree.Session = b
	for i := range 500 {
		tree.Seq++
		if out, _ := s.Apply(tree); out.Code == Granted {
			apply(t, s, Release{Session: b, Token: out.Token}, OK)
		} else { // behind the waiters below
			apply(t, s, Withdraw{Session: b, Seq: tree.Seq}, OK)
		}
		if i%10 == 0 {
			s.Apply(AdmitSlice{})
		}
		most = max(most, len(s.later))
	}
	if slices := waiters/(workPerKey*MaxAdmitted) + 1; most == 0 || most > slices {
		t.Errorf("%d visits are put off", most)
	}
	apply(t, s, Release{Session: a, Token: kept.Token}, OK)
	for s.HasPutOff() {
		s.Apply(AdmitSlice{})
	}
	if n := s.Counts(); n.Waiters != 0 {
		t.Errorf("%+v", n)
	}
}

// Refusals count as grants do: a set whose grant refuses thousands of conditions at each of its
// keys ends the step.
func TestRefusalsEndAStep(t *testing.T) {
	a, b, c := session16("a"), session16("b"), session16("c")
	s := sessionsIn(t, a, b, c)
	held, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "h"}, Granted)
	const keys, each = 8, MaxAdmitted
	set := []string{"h"}
	for i := range keys {
		set = append(set, fmt.Sprint("k", i))
	}
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: set}, Queued)
	seq := uint64(0)
	for _, key := range set[1:] {
		for range each {
			seq++
			apply(t, s, Acquire{Session: c, Seq: seq, Key: key, Spec: Spec{Conditional: true, IfToken: held.Token}}, Queued)
		}
	}
	_, events := s.Apply(Release{Session: a, Token: held.Token})
	for steps := 1; ; steps++ {
		if n := count(events, EventRefused); n > 2*each {
			t.Fatalf("step %d refuses %d waiters", steps, n)
		}
		if !s.HasPutOff() {
			break
		}
		_, events = s.Apply(AdmitSlice{})
	}
	if n := s.Counts(); n.Waiters != 0 || n.Grants != keys+1 {
		t.Errorf("%+v", n)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
