package history

import "fmt"

// waiters checks the option MaxWaiters: a request with Most is refused only if so many others
// may have waited, and waits itself only if so many have not waited for certain.
func waiters(h *History) (found []Violation) {
	asks := make(map[string][]*Op) // by root
	holds := byRoot(h.Holds)
	var limited []*Op
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != Acquire || len(o.Keys) == 0 {
			continue
		}
		for j, k := range o.Keys {
			if j == 0 || root(k) != root(o.Keys[j-1]) {
				asks[root(k)] = append(asks[root(k)], o)
			}
		}
		if o.Most > 0 && len(o.Keys) == 1 {
			limited = append(limited, o)
		}
	}
	for _, o := range limited {
		key := o.Keys[0]
		wrong := func(format string, args ...any) {
			found = append(found, Violation{Check: "waiters", Key: key, At: o.Call, Until: o.Return, IDs: []string{o.ID}, Text: fmt.Sprintf(format, args...)})
		}
		switch {
		case o.Err == ErrWaiters && !o.Retried: // else its request of a former session may wait
			n := 0
			for _, a := range asks[root(key)] {
				switch {
				case a == o || !a.mayWait(o.Call, o.Return) || !a.claim().meets(o.claim()):
				case a.Retried:
					n += o.Most // its requests of former sessions may wait beside the last one
				default:
					n++
				}
			}
			if n < o.Most {
				wrong("%s was refused as if %d waited, and at most %d did", o.Client, o.Most, n)
			}
		case o.Queued > 0 && !o.Retried:
			if n := o.ahead(asks[root(key)], holds[root(key)]); n >= o.Most {
				wrong("%s waits behind %d others, and allowed fewer than %d", o.Client, n, o.Most)
			}
		}
	}
	return found
}

// mayWait reports whether a request may have stood in the queue at a moment between from and
// to. A request without an answer stands there until its session ends.
func (o *Op) mayWait(from, to int64) bool {
	return o.Call < to && (o.Return > from || !o.known() || o.Retried)
}

// ahead returns how many of the requests waited for certain when o came to wait: those that
// waited before, and were granted after a grant that was still held then.
func (o *Op) ahead(asks []*Op, holds []*Hold) (n int) {
	var token uint64 // of a grant that was still held
	for _, x := range holds {
		if x.Valid >= o.Queued && x.From < o.Call && x.mode() == Exclusive && x.Keys[0] == o.Keys[0] {
			token = max(token, x.Token)
		}
	}
	for _, a := range asks {
		if a != o && token > 0 && a.grants() && !a.Retried && a.Queued > 0 && a.Queued < o.Call &&
			a.Token > token && a.mode() == Exclusive && a.Keys[0] == o.Keys[0] {
			n++
		}
	}
	return n
}
