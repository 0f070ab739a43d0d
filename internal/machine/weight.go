package machine

// weight is the part of a session in the memory of every voter: the keys that the
// session holds or waits for, and their bytes. The index of the session has the sum.
//
// A plain key costs each voter about 250 bytes, its own included (BenchmarkHeapOfAKey): a member could fill the memory
// of all voters by requests. MaxHeld and MaxHeldBytes keep a session below 100 MB. A
// client with more keys than that opens several sessions.
type weight struct {
	keys  int
	bytes int
}

// lineageBytes is the memory of one token of a waiter's lineage: its place in the list,
// and the waiter's place in the branch of the token. In an image, each key of the waiter has
// the lineage again, tokenBytes for each token.
const (
	lineageBytes = 64
	tokenBytes   = 8
)

func (w *weight) add(other weight, n int) {
	w.keys += n * other.keys
	w.bytes += n * other.bytes
}

// weightOf returns the weight of a request for keys that holds, or that waits under a
// lineage. A set's meta is in memory once, and counts at each key nevertheless, as in an
// image: the sum of all weights bounds the image too.
func weightOf(keys []string, meta string, under []Token) weight {
	w := weight{keys: len(keys), bytes: len(under) * (lineageBytes + len(keys)*tokenBytes)}
	for _, key := range keys {
		w.bytes += len(key) + len(meta)
	}
	return w
}

// weigh returns the weight of a waiter: an upgrade waits for a key that it holds.
func (s *State) weigh(owner *session, w *waiter) weight {
	return s.weighAt(owner, w, owner.index.requests.at(w.seq))
}

// weighAt is weigh of a waiter whose location is at hand.
func (s *State) weighAt(owner *session, w *waiter, at location) weight {
	if w.upgrade != 0 {
		return weightOf(nil, "", w.under)
	}
	return weightOf(s.keysOf(owner, w.seq, at), w.Meta, w.under)
}

// roomFor returns the refusal of a request that would make a session too heavy, and the
// zero Outcome if there is room. Refusals are not remembered, as those of MaxUnseen are
// not: the memory of refusals would weigh as much as the keys.
func (x *index) roomFor(w weight) Outcome {
	switch {
	case x.weight.keys+w.keys > MaxHeld:
		return Outcome{Code: TooManyKeys, Limit: MaxHeld}
	case x.weight.bytes+w.bytes > MaxHeldBytes:
		return Outcome{Code: TooManyKeys, Limit: MaxHeldBytes}
	}
	return Outcome{}
}
