package voters

import (
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// size decides how many voters are wanted.
//
// An explicit number stands. Without one, three voters are wanted, and five while
// five members in memory live that may vote: in memory two losses at once are for
// ever with three voters, and five cost little. With a Dir the lost ones come back.
//
// A rolling restart of five members leaves four for a while, again and again. So
// five become three only after timing.FewerVoters with fewer than five. The wait
// costs nothing: four living voters bear one loss, as three do; and if two are gone,
// planVoters removes both at once, since that makes the majority smaller. A new
// leader begins the wait anew, which costs nothing either.
type size struct {
	explicit int
	durable  bool
	fewer    time.Time // since when fewer than five live; zero: five live
}

const (
	fewVoters  = 3
	manyVoters = 5
)

func (z *size) want(servers []server, candidates []candidate, now time.Time) int {
	if z.explicit != 0 {
		return z.explicit
	}
	if z.durable {
		return fewVoters
	}
	living, voters := 0, 0
	for _, s := range servers {
		if s.voter {
			voters++
		}
		if !s.gone && !s.leaving {
			living++
		}
	}
	for _, c := range candidates {
		if c.stable || voters >= manyVoters-1 {
			living++ // with five voters a newcomer is needed, and with three an improvement
		}
	}
	switch {
	case living >= manyVoters:
		z.fewer = time.Time{}
		return manyVoters
	case voters <= fewVoters:
		return fewVoters
	case z.fewer.IsZero():
		z.fewer = now
	case now.Sub(z.fewer) >= timing.FewerVoters:
		return fewVoters
	}
	return manyVoters
}
