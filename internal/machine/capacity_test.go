package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// permitModel is the independent idea of the permits of one key: a list of holders, a
// list of waiters, and numbers. Nobody in it has a priority, a delay or a lineage.
type permitModel struct {
	of      int // 0 if the key has no capacity
	set     bool
	holders []permitRequest
	waiters []permitRequest
}

type permitRequest struct {
	requestID
	n int
}

func (m *permitModel) held() (sum int) {
	for _, h := range m.holders {
		sum += h.n
	}
	return sum
}

// advance grants from the head on, and returns the granted.
func (m *permitModel) advance() (granted []requestID) {
	for len(m.waiters) > 0 && m.held()+m.waiters[0].n <= m.of {
		granted = append(granted, m.waiters[0].requestID)
		m.holders, m.waiters = append(m.holders, m.waiters[0]), m.waiters[1:]
	}
	if len(m.holders)+len(m.waiters) == 0 && !m.set {
		m.of = 0
	}
	return granted
}

// acquire returns the code of the answer.
func (m *permitModel) acquire(q requestID, n, of int, try bool) Code {
	have := m.of
	switch {
	case have == 0:
		have = of
	case !m.set && of != 0 && of != have:
		return WrongCapacity
	}
	switch {
	case n > have:
		return WrongCapacity
	case m.held()+n <= have && len(m.waiters) == 0:
		m.of = have
		m.holders = append(m.holders, permitRequest{q, n})
		return Granted
	case try:
		return Held
	}
	m.waiters = append(m.waiters, permitRequest{q, n})
	return Queued
}

// setCapacity returns the granted and the refused.
func (m *permitModel) setCapacity(of int) (granted, refused []requestID) {
	if m.set = of > 0; m.set {
		m.of = of
		m.waiters = slices.DeleteFunc(slices.Clone(m.waiters), func(w permitRequest) bool {
			if w.n > of {
				refused = append(refused, w.requestID)
			}
			return w.n > of
		})
	}
	return m.advance(), refused
}

// leave removes requests.
func (m *permitModel) leave(gone func(requestID) bool) []requestID {
	of := func(r permitRequest) bool { return gone(r.requestID) }
	m.waiters, m.holders = slices.DeleteFunc(m.waiters, of), slices.DeleteFunc(m.holders, of)
	return m.advance()
}

// TestPermitsAreGrantedAsTheModelSays plays random requests, releases, ends of sessions
// and capacities of one key. The table must grant and refuse as the model does, in the
// same entries and in the same order: so nobody is granted above the capacity, the head
// is not passed, nobody who fits waits, and a copy of a command changes nothing.
func TestPermitsAreGrantedAsTheModelSays(t *testing.T) {
	for seed := range testrounds.Rounds(30, 1000) {
		if err := playPermits(t, uint64(seed)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func playPermits(t *testing.T, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	s, m, seq := founded(), &permitModel{}, uint64(0)
	sessions := []SessionID{session16("a"), session16("b"), session16("c")}
	open := func() {
		for i, id := range sessions {
			s.Apply(Open{Session: id, Client: fmt.Sprint("client", i), Node: "n", Boot: 1, TTL: 1000})
		}
	}
	open()
	small := func(most int) int { return 1 + r.IntN(most) }
	for range 60 {
		seq++
		id := sessions[r.IntN(len(sessions))]
		q := requestID{id, seq}
		var c Command
		var code Code
		var granted, refused []requestID
		switch k := r.IntN(20); {
		case k < 9:
			a := Acquire{Session: id, Seq: seq, Key: "k", Spec: Spec{Mode: Permit, N: uint16(small(4)), Of: uint16(r.IntN(5))}, Try: r.IntN(4) == 0}
			c, code = a, m.acquire(q, int(a.N), int(a.Of), a.Try)
		case k < 14:
			if len(m.holders) == 0 {
				continue
			}
			h := m.holders[r.IntN(len(m.holders))]
			o := s.sessions.get(h.session)
			c, code = Release{Session: h.session, Token: o.index.requests.at(h.seq).token}, OK
			granted = m.leave(func(q requestID) bool { return q == h.requestID })
		case k < 16:
			if len(m.waiters) == 0 {
				continue
			}
			w := m.waiters[r.IntN(len(m.waiters))].requestID
			c, code = Withdraw{Session: w.session, Seq: w.seq}, OK
			granted = m.leave(func(q requestID) bool { return q == w })
		case k < 19:
			of := r.IntN(6)
			c, code = SetCapacity{Session: id, Seq: seq, Key: "k", Of: uint32(of)}, OK
			granted, refused = m.setCapacity(of)
		default:
			c, code = Close{Session: id}, OK
			granted = m.leave(func(q requestID) bool { return q.session == id })
		}
		out, events := s.Apply(c)
		if err := sameAsModel(s, m, out, events, code, granted, refused); err != nil {
			return fmt.Errorf("%T%+v: %w", c, c, err)
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("%T%+v: %w", c, c, err)
		}
		if r.IntN(4) == 0 {
			before := content(s)
			s.Apply(c)
			if _, closed := c.(Close); !closed && content(s) != before {
				return fmt.Errorf("a copy of %T%+v changes the table", c, c)
			}
		}
		if r.IntN(8) == 0 {
			restored, err := restored(s)
			if err != nil {
				return err
			}
			s = restored
		}
		open()
	}
	return nil
}

// sameAsModel compares the answer and the events of a step with the model's.
func sameAsModel(s *State, m *permitModel, out Outcome, events []Event, code Code, granted, refused []requestID) error {
	if out.Code != code {
		return fmt.Errorf("code %d, want %d", out.Code, code)
	}
	var gave, took []requestID
	for _, e := range events {
		switch q := (requestID{e.Session, e.Seq}); e.Kind {
		case EventGranted:
			gave = append(gave, q)
		case EventRefused:
			if took = append(took, q); e.Code != WrongCapacity || e.Limit != uint64(m.of) {
				return fmt.Errorf("refused with %+v", e)
			}
		}
	}
	if !slices.Equal(gave, granted) || !slices.Equal(took, refused) {
		return fmt.Errorf("granted %v and refused %v, want %v and %v", gave, took, granted, refused)
	}
	if st := s.Status("k", MaxHolders); st.Permits != m.held() || st.Of != m.of || st.Fixed != m.set || st.Queue != len(m.waiters) {
		return fmt.Errorf("status %+v, want %+v", st, m)
	}
	return nil
}

// TestSetCapacitiesAreBounded: beyond MaxCapacities another key is refused, and a key
// with a set capacity can still be changed, or given back for another.
func TestSetCapacitiesAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	apply(t, s, SetCapacity{Session: a, Seq: 1, Key: "first", Of: 1}, OK)
	s.keys.capacities += MaxCapacities - 1 // as many more would take a while
	out, _ := apply(t, s, SetCapacity{Session: a, Seq: 2, Key: "k", Of: 1}, TooManyCapacities)
	if out.Limit != MaxCapacities {
		t.Error(out)
	}
	apply(t, s, SetCapacity{Session: a, Seq: 3, Key: "first", Of: 2}, OK)
	apply(t, s, SetCapacity{Session: a, Seq: 4, Key: "first", Of: 0}, OK)
	apply(t, s, SetCapacity{Session: a, Seq: 2, Key: "k", Of: 1}, TooManyCapacities) // a copy
	apply(t, s, SetCapacity{Session: a, Seq: 5, Key: "k", Of: 1}, OK)
	s.keys.capacities -= MaxCapacities - 1
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestASetCapacityOutlivesTheRest: the keys that the table forgets, and a succession.
func TestASetCapacityOutlivesTheRest(t *testing.T) {
	s := withA(t)
	a, seq := session16("a"), uint64(0)
	next := func() uint64 { seq++; return seq }
	of := func(key string) int { return s.Status(key, 1).Of }
	apply(t, s, SetCapacity{Session: a, Seq: next(), Key: "plain", Of: 7}, OK)
	for _, key := range []string{"plain", "granted", "faded"} {
		use(t, s, &seq, key, map[string]string{"faded": "v"}[key], true)
	}
	apply(t, s, SetCapacity{Session: a, Seq: next(), Key: "granted", Of: 7}, OK)
	apply(t, s, SetCapacity{Session: a, Seq: next(), Key: "faded", Of: 7}, OK)
	for i := range MaxFading + 1 {
		use(t, s, &seq, fmt.Sprint("other ", i), "v", true)
	}
	if s.Value("faded") != "" || of("faded") != 7 || s.Status("faded", 1).Last == 0 {
		t.Errorf("a faded value left %+v", s.Status("faded", 1))
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	last := s.Status("granted", 1).Last
	apply(t, s, Found{Cluster: ClusterID{2}, Floor: 1, TTL: 1000}, OK)
	for _, key := range []string{"plain", "granted", "faded"} {
		if of(key) != 7 || s.Status(key, 1).Last <= last {
			t.Errorf("after a succession %+v", s.Status(key, 1))
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	b := session16("b")
	apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
	for i, key := range []string{"plain", "granted", "faded"} {
		apply(t, s, SetCapacity{Session: b, Seq: uint64(i + 1), Key: key, Of: 0}, OK)
		if of(key) != 0 {
			t.Errorf("%q: %+v", key, s.Status(key, 1))
		}
	}
	if n := s.Counts(); n.Capacities != 0 || s.keys.get("plain") != &noRecord {
		t.Errorf("left %+v", n)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestLoweringTakesTimeInProportion: thousands of waiters are refused in one step, and
// thousands that wait under permits of the same key.
func TestLoweringTakesTimeInProportion(t *testing.T) {
	s := withA(t)
	a := session16("a")
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Permit, N: 3, Of: 8}}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "k", Spec: Spec{Mode: Permit, N: 5}}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "k", Spec: Spec{Mode: Permit, N: 4}, Under: []Token{1}}, Queued)
	apply(t, s, Acquire{Session: a, Seq: 4, Key: "k", Spec: Spec{Mode: Permit, N: 5}}, Queued)
	two := slices.Clone(s.keys.get("k").queue)
	o := s.sessions.get(a)
	for i := 2; i < MaxWaiters; i++ { // by hand: each arrival looks for cycles
		w := two[i%2]
		w.seq = uint64(3 + i)
		o.spent.add(w.seq)
		s.lineage.add(&w)
		s.keys.edit("k", func(r *record) { r.insertWaiter(len(r.queue), w) })
		o.index.queued(w.seq, location{key: "k", phase: waiting}, weightOf([]string{"k"}, "", w.under))
	}
	_, events := apply(t, s, SetCapacity{Session: a, Seq: 1 << 20, Key: "k", Of: 4}, OK)
	refused := make(map[Code]int)
	for _, e := range events {
		if e.Kind == EventRefused {
			refused[e.Code]++
		}
	}
	if refused[WrongCapacity] != MaxWaiters/2 || refused[Deadlock] != MaxWaiters/2 {
		t.Errorf("refused %v", refused)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestLoweringRefusesNobodyBehindACycle: a waiter with a lineage that merely stands behind
// a waiter in a deadlock is free with the refusal of the other.
func TestLoweringRefusesNobodyBehindACycle(t *testing.T) {
	s := founded()
	a, b, c := session16("a"), session16("b"), session16("c")
	for _, id := range []SessionID{a, b, c} {
		apply(t, s, Open{Session: id, Client: "c", TTL: 5_000}, OK)
	}
	permits := func(n uint16) Spec { return Spec{Mode: Permit, N: n, Of: 4} }
	own, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: permits(2)}, Granted)
	spare, _ := apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: permits(2)}, Granted)
	other, _ := apply(t, s, Acquire{Session: c, Seq: 1, Key: "l"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "k", Spec: permits(2), Under: []Token{own.Token}}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 2, Key: "k", Spec: permits(1), Under: []Token{other.Token}}, Queued)
	_, events := apply(t, s, SetCapacity{Session: b, Seq: 2, Key: "k", Of: 3}, OK)
	for _, e := range events {
		if e.Kind == EventRefused && (e.Session != a || e.Code != Deadlock) {
			t.Errorf("refused %+v", e)
		}
	}
	_, events = apply(t, s, Release{Session: b, Token: spare.Token}, OK)
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventGranted && e.Session == c }) {
		t.Errorf("not granted: %+v", events)
	}
}
