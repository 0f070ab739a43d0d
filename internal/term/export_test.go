package term

// Limits that the tests fill.
const (
	MaxHeld       = maxHeld
	MaxMetas      = metaRoom
	MaxProposals  = maxProposals
	MaxQueueBytes = maxQueueBytes
	MaxReads      = maxReads
	MaxReadKeys   = maxReadKeys
)

// Held returns the bytes of answers that wait for their round.
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

// Counted returns how many sessions and delays the keeper counts for.
func (t *Term) Counted() (sessions, delays int) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	return len(t.keeper.sessions), len(t.keeper.delays)
}

// Expects reports whether the next entry is expected to be bytes that are decoded
// already, and calls f with their commands.
func (t *Table) Expected() (bytes []byte, commands []any) {
	t.expecting.Lock()
	defer t.expecting.Unlock()
	for _, c := range t.expected.commands {
		commands = append(commands, c)
	}
	return t.expected.bytes, commands
}
