package term

import (
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Summarize calls done with a summary of the table, once a round begun after now has
// confirmed the leader.
func (t *Term) Summarize(done func(wire.Summary, wire.Code)) {
	t.confirmThen(wire.CodeOK, func(c wire.Code) {
		if c != wire.CodeOK {
			done(wire.Summary{}, c)
			return
		}
		done(t.summary(), c)
	})
}

// Rounds describes how long the latest rounds took that confirmed the leader.
func (t *Term) Rounds() timing.Quantiles { return t.rounds.took.Quantiles() }

// summary counts what the table has now. summary does not wait for the table.
func (t *Term) summary() wire.Summary {
	m := t.table.latest.Load()
	return wire.Summary{
		Term: t.Number(), Clock: t.table.Clock.Wall().UnixNano(), Commands: m.Commands, Granting: m.lifted, Members: uint32(t.Members()),
		Keys: uint32(m.Keys), Grants: uint32(m.Grants), Waits: uint32(m.Waits), Sessions: uint32(m.Sessions),
		Values: uint32(m.Values), Groups: uint32(m.Groups), Shards: uint32(m.Shards),
	}
}

// encodedSummary returns the body of an answer with the code: a summary with CodeOK, and
// nothing otherwise.
func (t *Term) encodedSummary(c wire.Code) []byte {
	if c != wire.CodeOK {
		return nil
	}
	s := t.summary()
	return wire.Marshal(&s)
}
