package founding

import "github.com/wardmote/wardmote/internal/wire"

// DeniedError is the refusal of an operator's word by a member that was asked to take
// part: by Security.Authorize there.
type DeniedError struct{ Member, Reason string }

func (e *DeniedError) Error() string {
	return "cluster: not recovered: denied by " + e.Member + ": " + e.Reason
}

// noteDenial keeps a member's refusal for Recover, and returns the refusal as text.
func (r *Runner) noteDenial(member string, body []byte) string {
	d := &DeniedError{Member: member, Reason: clip(wire.DeniedReason(body))}
	r.mu.Lock()
	if r.recover != nil {
		r.recover.denied = d
	}
	r.mu.Unlock()
	return "denied: " + d.Reason
}

// denial returns the refusal since the beginning of Recover, or nil. Not a nil pointer
// in an error.
func (r *Runner) denial() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recover == nil || r.recover.denied == nil {
		return nil
	}
	return r.recover.denied
}
