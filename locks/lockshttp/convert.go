package lockshttp

import (
	"strconv"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// keyDocument describes a key, with up to most holders and waiters. Ages count up to now.
// timed says that the status comes from a leader, who alone knows how long grants last.
func keyDocument(st locks.Status, most int, now time.Time, timed bool) documents.Key {
	k := documents.Key{
		Key:         st.Key,
		Holders:     make([]documents.Holder, 0, min(most, len(st.Holders))),
		Holding:     st.Holding,
		Waiters:     make([]documents.Waiter, 0, min(most, len(st.Waiters))),
		Queue:       st.Queue,
		Token:       documents.Number(st.Token),
		Clean:       st.Clean,
		Permits:     st.Permits,
		Capacity:    st.Capacity,
		CapacitySet: st.CapacitySet,
	}
	for _, h := range st.Holders[:min(most, len(st.Holders))] {
		k.Holders = append(k.Holders, holderDocument(h, now, timed))
	}
	for _, w := range st.Waiters[:min(most, len(st.Waiters))] {
		k.Waiters = append(k.Waiters, waiterDocument(w, now))
	}
	return k
}

func holderDocument(h locks.Holder, now time.Time, timed bool) documents.Holder {
	d := documents.Holder{
		Client:     h.Client,
		Node:       h.Node,
		Self:       h.Self,
		Session:    h.Ref,
		Token:      documents.Number(h.Token),
		Mode:       h.Mode.String(),
		Permits:    h.N,
		Tree:       h.Tree,
		Asked:      h.Asked,
		Broken:     h.Broken,
		Sticky:     h.Sticky,
		Delayed:    h.Delayed,
		Meta:       h.Meta,
		ClientMeta: h.ClientMeta,
	}
	d.Acquired, d.Age = moment(h.Acquired, now)
	if h.Keys > 1 {
		d.Keys = h.Keys
	}
	if timed {
		d.Left = (*documents.Duration)(&h.Left)
	}
	return d
}

func waiterDocument(w locks.Waiter, now time.Time) documents.Waiter {
	d := documents.Waiter{
		Client:   w.Client,
		Node:     w.Node,
		Self:     w.Self,
		Session:  w.Ref,
		Position: w.Position,
		Mode:     w.Mode.String(),
		Permits:  w.N,
		Tree:     w.Tree,
		Upgrade:  w.Upgrade,
		Priority: w.Priority,
		Passed:   w.Passed,
		Meta:     w.Meta,
	}
	d.Since, d.Age = moment(w.Since, now)
	if w.Keys > 1 {
		d.Keys = w.Keys
	}
	return d
}

func sessionDocument(s locks.Session, now time.Time, timed bool) documents.Session {
	d := documents.Session{
		Ref:    s.Ref,
		Client: s.Client,
		Node:   s.Node,
		Self:   s.Self,
		TTL:    documents.Duration(s.TTL),
		Ending: s.Ending,
		Keys:   s.Keys,
		Waits:  s.Waits,
		Meta:   s.Meta,
	}
	d.Opened, d.Age = moment(s.Opened, now)
	if timed {
		d.Left = (*documents.Duration)(&s.Left)
	}
	return d
}

// moment returns t and its age, both nil if t is unknown. The clock that read t may be
// ahead of this host's: an age is not negative.
func moment(t, now time.Time) (*time.Time, *documents.Duration) {
	if t.IsZero() {
		return nil, nil
	}
	t = t.UTC()
	age := documents.Duration(max(0, now.Sub(t)).Round(time.Millisecond))
	return &t, &age
}

// ranges writes ascending shards as "0-3,9".
func ranges(shards []int) string {
	var b []byte
	for i := 0; i < len(shards); {
		j := i
		for j+1 < len(shards) && shards[j+1] == shards[j]+1 {
			j++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(shards[i]), 10)
		if j > i {
			b = strconv.AppendInt(append(b, '-'), int64(shards[j]), 10)
		}
		i = j + 1
	}
	return string(b)
}
