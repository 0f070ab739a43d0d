package machine

// MaxCost bounds the sum of the costs of the commands in one log entry: the voters apply
// nothing else meanwhile, and the leader acknowledges no beat. A unit of cost is a key
// visited, about a microsecond. A command of more than MaxCost has an entry of its own.
const MaxCost = 4096

// leastSearch is the least cost of a request that may close a cycle of waits: how much of
// the table its search visits is not known before. A crowd of such requests shares an
// entry by sixteen.
const leastSearch = MaxCost / 16

// Cost estimates how long Apply takes for c in the present table. The number of a
// command's bytes does not tell: a Release of a few bytes frees a thousand keys. The
// estimate is for a leader that fills a log entry. It decides nothing in the table, so
// voters may differ.
//
// Requests that the table does not have yet cost what they cost on arrival, so a command
// that takes back another one of the same entry is counted by the other one.
func (s *State) Cost(c Command) int {
	switch c := c.(type) {
	case Acquire:
		return s.costOfAcquire(&c)
	case Upgrade:
		key, tree := s.keyOf(c.Session, c.Token)
		return len(c.Seen)/seenPerUnit + s.costOfLevels(tree, key) + s.costOfSearch(tree, key)
	case Downgrade:
		return 1 + len(c.Seen)/seenPerUnit + s.costOfFreeing(c.Session, c.Token)
	case Release:
		return 1 + len(c.Seen)/seenPerUnit + s.costOfFreeing(c.Session, c.Token)
	case Withdraw:
		cost := 1 + len(c.Seen)/seenPerUnit
		if o := s.sessions.get(c.Session); o != nil {
			cost += s.costOfWithdrawing(o, c)
		}
		return cost
	case SetValue:
		return 1 + len(c.Seen)/seenPerUnit + len(c.Value)/1024
	case Extend:
		key, _ := s.keyOf(c.Session, c.Token)
		return 1 + len(c.Seen)/seenPerUnit + levelsOf(key)/2
	case SetCapacity:
		return 1 + len(c.Seen)/seenPerUnit + 2*len(s.keys.get(c.Key).queue)
	case Ask:
		return s.costOfAsk(c.Key)
	case Break:
		return 1 + s.costOfBreak(c)
	case Close:
		return s.costOfSession(s.sessions.get(c.Session))
	case Expire:
		return s.costOfSession(s.sessions.get(c.Session))
	case EndSession:
		return s.costOfSession(s.sessionOf(c.Ref))
	case EndSlice:
		return s.costOfSession(s.sessions.get(c.Session))
	case Found, Lift, Forget:
		return MaxCost
	case AdmitSlice:
		return 1 + min(workPerKey*MaxAdmitted/2, workPerKey*s.keys.waiters)
	case Enlist:
		cost := 1 + len(c.Seen)/seenPerUnit + s.costOfGroup(c.Group, c.Shards) + s.costOfNumber(c.Group, c.Shards)
		if s.groups.get(c.Group) == nil && s.groups.n >= MaxIdleGroups {
			cost += MaxCost / 16 // a look at all groups
		}
		return cost
	case Delist:
		return 1 + len(c.Seen)/seenPerUnit + s.costOfCaller(c.Session, c.Seq)
	case Decline:
		return 1 + len(c.Seen)/seenPerUnit + s.costOfCaller(c.Session, c.Seq)
	case Resize:
		return 1 + len(c.Seen)/seenPerUnit + s.costOfGroup(c.Group, max(c.From, c.To))
	case Assign:
		return s.costOfGroup(c.Group, 0) + len(c.Moves)/2
	case Dismiss:
		return s.costOfGroup(c.Group, 0)
	case Reshard:
		return s.costOfGroup(c.Group, 0) + s.costOfNumber(c.Group, 0)
	}
	return 1
}

const (
	seenPerUnit  = 4  // entries of a Seen list
	stepsPerUnit = 30 // steps of a search
)

// costOfAcquire counts each key of a set twice: the set may be taken back in the same entry.
func (s *State) costOfAcquire(c *Acquire) int {
	cost := 1 + len(c.Seen)/seenPerUnit + len(c.Under)/seenPerUnit
	for _, token := range c.Freed {
		if cost >= MaxCost {
			break
		}
		cost += 1 + s.costOfFreeing(c.Session, token)
	}
	if c.Tree {
		cost += s.costOfRecall(c)
	}
	if c.Key != "" {
		cost += s.costOfLevels(c.Tree, c.Key)
		if len(c.Under) > 0 {
			cost += s.costOfSearch(c.Tree, c.Key)
		}
		r := s.keys.get(c.Key)
		if n := len(r.holders); n > 0 && !(r.holders[0].is(markContended) && r.holders[n-1].is(markContended)) {
			cost += n // each is told of the first waiter
		}
		return cost
	}
	cost += 2*len(c.Keys) + s.costOfLevels(c.Tree, c.Keys...)
	if len(c.Under) > 0 {
		cost += s.costOfSearch(c.Tree, c.Keys...)
	}
	return cost
}

// costOfRecall is the cost of telling the holders below trees: see recallBelow.
func (s *State) costOfRecall(c *Acquire) (cost int) {
	keys := c.Keys
	if c.Key != "" {
		keys = []string{c.Key}
	}
	for _, key := range keys {
		if cost == 2*MaxSlice {
			return cost + len(keys) // the others tell one each
		}
		for range s.keys.keysBelow(key, recallable) {
			if cost += 2; cost == 2*MaxSlice {
				break
			}
		}
	}
	return cost
}

// costOfLevels is the cost of a look at all keys above keys: see conflict.go. Only trees
// need it.
func (s *State) costOfLevels(tree bool, keys ...string) (cost int) {
	if !tree && s.keys.trees == 0 {
		return 0
	}
	for _, key := range keys {
		cost += levelsOf(key) / 2
	}
	return cost
}

// costOfSearch is the cost of a request for keys that keeps other grants: small where the
// keys are free. The waits of others may lead anywhere, so the latest searches count.
// A tree may meet every waiter of the table below its keys.
func (s *State) costOfSearch(tree bool, keys ...string) int {
	near := 0
	for _, key := range keys {
		r := s.keys.get(key)
		near += len(r.holders) + len(r.queue)
		if tree && near < MaxCost {
			for range s.keys.keysBelow(key, waitersBelow(tree)) {
				near += s.keys.waiters
				break
			}
		}
	}
	if near == 0 && s.keys.trees == 0 {
		return 1
	}
	return max(leastSearch, 2*near, s.searched/stepsPerUnit)
}

// noteSearch notes the steps of a search for Cost. A costly kind of searches is remembered
// for some time.
func (s *State) noteSearch(steps int) { s.searched = max(steps, s.searched-s.searched/16) }

// keyOf returns the key of a grant of a session, or "", and whether the grant is of a tree.
func (s *State) keyOf(id SessionID, token Token) (key string, tree bool) {
	if o := s.sessions.get(id); o != nil {
		if _, at, g := s.grantOf(o, token); g != nil {
			return at.key, g.Tree
		}
	}
	return "", false
}

// costOfFreeing counts the keys of a grant, and the waiters that may be granted then.
func (s *State) costOfFreeing(id SessionID, token Token) int {
	o := s.sessions.get(id)
	if o == nil {
		return 0
	}
	seq, at, g := s.grantOf(o, token)
	if g == nil {
		return 0
	}
	return s.costOfKeys(s.keysOf(o, seq, at), g.Tree, func(w *waiter) bool { return w.upgrade == token })
}

// costOfKeys counts keys, or trees, that become free, and the waiters that may be granted
// then: a request for many keys, many readers and permits at once, or many above or below. The
// waiters that are gone leave the queues at the same time.
func (s *State) costOfKeys(keys []string, tree bool, gone func(*waiter) bool) int {
	cost := 2*len(keys) + 2*s.costOfLevels(false, keys...)
	looks := lookedAt
	var set requestID // counted last
	for _, key := range keys {
		if cost >= MaxCost {
			break
		}
		cost += s.costOfTrees(key, tree)
		r := s.keys.get(key)
		i := 0
		for i < len(r.queue) && gone(&r.queue[i]) {
			look(1)
			if i++; looks == 0 {
				return max(cost, MaxCost)
			}
			looks--
		}
		if i == len(r.queue) {
			continue
		}
		head := &r.queue[i]
		if head.Mode != Exclusive || r.conditions > 0 {
			cost += len(r.queue)
		}
		if head.set && head.requestID != set {
			set = head.requestID
			cost += 2 * len(s.sets.get(set))
		}
	}
	return cost
}

// lookedAt is how many waiters Cost looks at, some tenth of a millisecond.
const lookedAt = 16 * MaxCost

// costOfTrees counts the waiters above and below a key that becomes free, or below a tree.
func (s *State) costOfTrees(key string, tree bool) (cost int) {
	if s.keys.trees == 0 && !tree {
		return 0
	}
	for _, r := range s.keys.recordsAbove(key) {
		if (tree || r.trees > 0) && len(r.queue) > 0 && r.queue[0].Mode != Exclusive {
			cost += len(r.queue)
		}
	}
	for k := range s.keys.keysBelow(key, waitersBelow(tree)) {
		if cost >= MaxCost {
			break
		}
		cost += costBelow
		if r := s.keys.get(k); len(r.queue) > 0 && r.queue[0].Mode != Exclusive {
			cost += len(r.queue)
		}
	}
	return cost
}

// costBelow is the cost of a waiter below a tree.
const costBelow = 3

// costOfWithdrawing counts the keys of all requests at once: they may stand behind each other.
func (s *State) costOfWithdrawing(o *session, c Withdraw) (cost int) {
	var keys []string
	known, seqs := make(map[string]bool), make(map[uint64]bool)
	tree := false
	for i := range 1 + len(c.More) {
		seq := c.Seq
		if i > 0 {
			seq = c.More[i-1]
		}
		if cost >= MaxCost {
			return cost
		}
		seqs[seq] = true
		at, ok := o.index.requests.get(seq)
		switch {
		case !ok:
			cost++
		case at.phase == answered:
			cost += 2
		case at.phase == waiting && len(keys) > MaxWithdrawnKeys:
			return cost // refused
		case at.phase == waiting:
			for _, key := range s.keysOf(o, seq, at) {
				if known[key] {
					cost++
					continue
				}
				known[key] = true
				keys = append(keys, key)
				tree = tree || s.keys.get(key).trees > 0
			}
		default:
			cost += s.costOfFreeing(o.id, at.token)
		}
	}
	return cost + s.costOfKeys(keys, tree, func(w *waiter) bool { return w.session == o.id && seqs[w.seq] })
}

func (s *State) costOfBreak(c Break) int {
	r := s.keys.get(c.Key)
	i := r.named(c.Token)
	if i < 0 || r.holders[i].ghost != nil {
		return s.costOfKeys([]string{c.Key}, i >= 0 && r.holders[i].Tree, func(*waiter) bool { return false })
	}
	return s.costOfFreeing(r.holders[i].session, r.holders[i].token)
}

// costOfAsk counts the keys of the grants that are told for the first time.
func (s *State) costOfAsk(key string) int {
	r := s.keys.get(key)
	cost := 1 + len(r.holders)
	for i := range r.holders {
		if g := &r.holders[i]; g.is(markSet) && !g.is(markAsked) && cost < MaxCost {
			cost += len(s.sets.get(g.requestID))
		}
	}
	return cost
}

func (s *State) costOfSession(o *session) int {
	if o == nil {
		return 1
	}
	// A slice of the session: see ending.go.
	return 1 + min(workPerKey*MaxSlice, 2*o.index.requests.len()+2*o.index.weight.keys+len(o.index.enlisted)*MaxCost/64)
}

func (s *State) costOfCaller(id SessionID, seq uint64) int {
	if o := s.sessions.get(id); o != nil {
		if name, ok := o.index.enlisted[seq]; ok {
			return s.costOfGroup(name, 0)
		}
	}
	return 1
}

// costOfGroup counts the shards and the callers, which each command about a group passes
// over, quickly.
func (s *State) costOfGroup(name string, shards uint32) int {
	callers := 0
	if g := s.groups.get(name); g != nil {
		shards, callers = max(shards, g.shards, g.next), len(g.callers)
	}
	cost := 1 + int(min(shards, MaxShards))/128 + callers/4
	if s.groups.n-s.groupSums.active > MaxIdleGroups {
		cost += MaxCost / 16 // a look at all groups: see forgetOldestGroup
	}
	return cost
}

// costOfNumber is the cost of a look at the key of each shard: see heldShard. An Enlist
// with another number than that of an idle group, and a Reshard, have it.
func (s *State) costOfNumber(name string, shards uint32) int {
	g := s.groups.get(name)
	if g == nil || shards == g.shards {
		return 0
	}
	return int(g.shards) / 4
}
