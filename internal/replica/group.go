package replica

import (
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
)

// Complete adds to the answer the callers of the state before, which is of the version
// Query.Since, that have neither changed nor gone since. Complete does nothing to an
// answer that has all callers.
func (a *Answer) Complete(before *machine.GroupStatus) {
	if a.Group == nil || a.Since == 0 || before == nil {
		return
	}
	callers := make([]machine.Caller, 0, len(before.Callers)+len(a.Group.Callers))
	rest := a.Group.Callers
	for _, c := range before.Callers {
		for len(rest) > 0 && rest[0].ID < c.ID {
			callers, rest = append(callers, rest[0]), rest[1:]
		}
		switch {
		case len(rest) > 0 && rest[0].ID == c.ID:
			callers, rest = append(callers, rest[0]), rest[1:]
		case !slices.Contains(a.Gone, c.ID):
			callers = append(callers, c)
		}
	}
	a.Group.Callers = append(callers, rest...)
	a.Since, a.Gone = 0, nil
}
