package fencetest

import (
	"context"
	"sync"
	"testing"

	"github.com/wardmote/wardmote/fence"
)

// mutant is a sound guard with one fault.
type mutant struct {
	mu    *sync.Mutex
	mark  *fence.Token
	value string

	once  bool // a token is admitted by one claim
	float bool // marks are floats
}

func (m *mutant) Claim(_ context.Context, t fence.Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.once && t == *m.mark {
		return &fence.StaleError{Token: t, Seen: *m.mark}
	}
	return m.admit(t)
}

func (m *mutant) Write(_ context.Context, t fence.Token, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.admit(t); err != nil {
		return err
	}
	m.value = value
	return nil
}

func (m *mutant) admit(t fence.Token) error {
	switch {
	case t == 0:
		return fence.ErrUnfenced
	case t < *m.mark && m.float:
		return &fence.StaleError{Token: t, Seen: fence.Token(float64(*m.mark))}
	case t < *m.mark:
		return &fence.StaleError{Token: t, Seen: *m.mark}
	}
	*m.mark = t
	return nil
}

func (m *mutant) Read(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value, nil
}

// The cases without a control of their own find these faults, and none in the guard
// without a fault.
func TestCasesFindTheirFaults(t *testing.T) {
	shared := &mutant{mu: new(sync.Mutex), mark: new(fence.Token)}
	sound := func() mutant { return mutant{mu: new(sync.Mutex), mark: new(fence.Token)} }
	for _, test := range []struct {
		fault string
		open  func() Resource
		found []string
	}{
		{"none", func() Resource { m := sound(); return &m }, nil},
		{"one mark for all resources", func() Resource { m := *shared; return &m },
			[]string{"two resources"}},
		{"a claim of the mark is refused", func() Resource { m := sound(); m.once = true; return &m },
			[]string{"equal tokens are admitted", "a race for the first claim"}},
		{"marks are told as floats", func() Resource { m := sound(); m.float = true; return &m },
			[]string{"neighbours among large tokens"}},
	} {
		failed := make(map[string]bool)
		for _, c := range cases {
			if c.needs == nil && !c.control {
				failed[c.name] = c.play(t, func(testing.TB) Resource { return test.open() }) != nil
			}
		}
		for _, name := range test.found {
			if !failed[name] {
				t.Errorf("%s: the case %q finds nothing", test.fault, name)
			}
		}
		for name := range failed {
			if failed[name] && test.found == nil {
				t.Errorf("the case %q finds a fault in a sound guard", name)
			}
		}
	}
}
