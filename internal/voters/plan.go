package voters

// server is a line of the raft configuration as seen by the leader.
type server struct {
	id      string
	voter   bool
	gone    bool // will not come back, or not soon
	leaving bool // asked to be replaced
	ready   bool // a non-voter and caught up
	alive   bool
	silent  bool // not seen for long: gone unless the server answers
}

// A step is a change on the way to the wanted configuration.
type step struct {
	kind stepKind
	id   string
}

type stepKind uint8

const (
	stepNone    stepKind = iota
	stepInvite           // the next candidate becomes a non-voter
	stepPromote          // non-voter id becomes a voter
	stepRemove           // server id leaves
)

// planVoters chooses the next step. The plan counts on nothing unseen: the target
// is the wanted number, or the largest odd number the living allow. A dead voter
// is kept until a successor has caught up, because the dead voter may still return. Repair comes before growth. Growth goes from odd to odd, since an
// even number of voters bears no more losses than the odd number below.
func planVoters(servers []server, candidates, want int) step {
	var healthy, voters, up int
	var gone, leaving, ready, living []server
	for _, s := range servers {
		if s.voter && s.alive {
			up++
		}
		switch {
		case !s.voter && (s.gone || s.leaving || !s.alive):
			return step{stepRemove, s.id} // a non-voter counts for nothing yet
		case !s.voter:
			living = append(living, s)
			if s.ready {
				ready = append(ready, s)
			}
		case s.gone:
			voters++
			gone = append(gone, s)
		case s.leaving:
			voters++
			leaving = append(leaving, s)
		default:
			voters++
			healthy++
		}
	}
	target := min(want, healthy+len(living)+candidates)
	if target%2 == 0 {
		target--
	}
	need := target - healthy
	// A living voter may go only if the other living voters are a majority of all
	// other voters. A dead voter does not count as living, though it may return.
	spare := up-1 >= (voters-1)/2+1
	switch {
	case need > 0 && len(gone) > 0 && len(ready) > 0:
		return step{stepRemove, gone[0].id}
	case need > 0 && len(ready) > 0 && (len(leaving) > 0 || voters%2 == 0 || len(ready) > 1):
		return step{stepPromote, ready[0].id}
	case need > len(living) && candidates > 0:
		return step{kind: stepInvite}
	case need > 0 && len(living) > 0:
		return step{} // wait until the non-voters have caught up
	case len(leaving) > 0 && spare:
		return step{stepRemove, leaving[0].id}
	case len(gone) > 0 && (healthy >= want || len(leaving) > 0):
		// Not needed, or in the way of a leaving voter.
		return step{stepRemove, gone[0].id}
	case len(living) > 0:
		return step{stepRemove, living[0].id} // no standing non-voters
	case healthy > want && spare:
		return step{stepRemove, servers[len(servers)-1].id}
	}
	return step{}
}
