package term

import (
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits filled by the tests.
const (
	MaxHeld       = maxHeld
	MaxMetas      = metaRoom
	MaxProposals  = maxProposals
	MaxQueueBytes = maxQueueBytes
	MaxReads      = maxReads
	MaxReadKeys   = maxReadKeys
)

// Held returns the bytes of answers waiting for a round.
func (t *Term) Held() int64 { return t.held.Load() }

// Watched returns how many keys and prefixes are watched.
func (t *Term) Watched() int {
	ws := t.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.keys) + len(ws.prefixes) + len(ws.lengths) + len(ws.dirty)
}

// Watching returns how many reads wait for a change of key.
func (t *Term) Watching(key string) int {
	ws := t.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.keys[key])
}

// Routed returns how many sessions' events go to a subscriber.
func (t *Term) Routed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sessions)
}

// Counted returns how many sessions and delays the keeper counts for.
func (t *Term) Counted() (sessions, delays int) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	return len(t.keeper.sessions), len(t.keeper.delays)
}

// Expected returns the expected entry and the commands decoded already, or nil.
func (t *Table) Expected() (bytes []byte, commands []any) {
	t.expecting.Lock()
	defer t.expecting.Unlock()
	for _, c := range t.expected.commands {
		commands = append(commands, c)
	}
	return t.expected.bytes, commands
}

// Forward proposes a command as a stream does.
func (t *Term) Forward(body []byte, done func(machine.Outcome, wire.Code)) {
	cmd, err := machine.DecodeCommand(body)
	if err != nil {
		panic(err)
	}
	t.propose(nil, cmd, body, done)
}

// ReadEncoded reads as a stream does.
func (t *Term) ReadEncoded(q replica.Query, done func([]byte, wire.Code)) {
	read(t, q, encoded[replica.Answer], done)
}

// FitAnswer cuts an answer to one frame and encodes it.
func FitAnswer(a *replica.Answer) ([]byte, int) { return fitAnswer(a, encoded[replica.Answer]) }
