package timing

import "time"

// Durations that derive from the TTL, which is the cluster's bound unless a
// function's comment says otherwise. Each has a floor, below which the pauses of an
// ordinary host would count as faults, and a ceiling, above which a longer TTL buys
// nothing.

// MostBackoff is the longest pause before another attempt to reach the leader, or
// to repeat a request.
func MostBackoff(ttl time.Duration) time.Duration {
	return within(ttl/20, 2*LeastBackoff, 500*time.Millisecond)
}

// Suspect is for how long a leader may answer nothing before the member asks
// whether the leader is there. After twice as long the member asks the voters too.
func Suspect(ttl time.Duration) time.Duration {
	return within(ttl/20, 40*time.Millisecond, 500*time.Millisecond)
}

// AnswerLimit is for how long a leader may answer nothing, that question included,
// before the member leaves the leader without knowing another leader.
func AnswerLimit(ttl time.Duration) time.Duration {
	return within(3*ttl/10, 200*time.Millisecond, 3*time.Second)
}

// RelayAfter is for how long a member tries to reach a leader before the member
// asks a voter to relay the stream, and tries members without a vote.
func RelayAfter(ttl time.Duration) time.Duration { return Suspect(ttl) }

// HoldFind is for how long a voter keeps a member's question for the leader.
func HoldFind(ttl time.Duration) time.Duration {
	return within(ttl, time.Second, MostHold)
}

// Heartbeat is how far apart a leader's heartbeats are: as many moments of its grid as leave
// a follower five heartbeats in its election timeout.
func Heartbeat(ttl time.Duration) time.Duration { return Election(ttl) / 5 / Attend * Attend }

// HeartbeatRest is how young the last heartbeat may be for the next moment of the grid to be
// early enough, although that moment may come a little late; 0 if every moment is needed.
func HeartbeatRest(ttl time.Duration) time.Duration { return (Heartbeat(ttl) - Attend) * 5 / 4 }

// LeaseMore is by how much the leader's heartbeats extend LeaderLease while a majority is
// silent, so that the leader steps down shortly before the election timeout has passed:
// early enough for raft's look at its lease, which may come 10 ms late.
func LeaseMore(ttl time.Duration) time.Duration {
	return max(Election(ttl)-LeaderLease-Attend/2, 0)
}

// QuorumPatience is for how long a leader must be missed to count as a lost quorum.
func QuorumPatience(ttl time.Duration) time.Duration {
	return within(ttl/2, 3*time.Second, 5*time.Second)
}

// Spread is the period in which so many members, which lose their leader at one
// moment, begin to dial the next leader or the voters. A millisecond for each
// member is less than a TLS handshake takes on a slow core, and lets 300 members
// attach in a third of a second. Thousands of members need a TTL of which a twentieth
// is long enough. The number is a leader's word, so any number gives a period, and none
// a long one.
func Spread(ttl time.Duration, members int) time.Duration {
	most := max(MostBackoff(ttl), min(ttl/20, MostSpread))
	return time.Duration(max(1, min(members, int(most/time.Millisecond)))) * time.Millisecond
}

// FewMembers is the number of members up to which gossip tells each change at once.
const FewMembers = 64

// MostSpread is the longest Spread: a millisecond for each process that gossip knows.
const MostSpread = 4 * time.Second

// News is the least time between two tellings of changes among so many members. A
// reader looks at every member, which takes less than a microsecond for each: so news take
// a reader less than a fiftieth of a core, however many members come and go.
func News(members int) time.Duration {
	if members <= FewMembers {
		return 0
	}
	return min(time.Duration(members)*50*time.Microsecond, Seek)
}

func within(d, least, most time.Duration) time.Duration { return max(least, min(d, most)) }
