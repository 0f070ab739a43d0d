package fence

import (
	"errors"
	"path/filepath"
	"testing"
)

// refusal is one call of Refused.
type refusal struct {
	token Token
	err   error
}

// Each refused call is told once, with the error that the call returns, and after the
// guard has let go of its lock. Admitted calls and failed writes are not told.
func TestEachRefusalIsTold(t *testing.T) {
	file, err := OpenFile(filepath.Join(t.TempDir(), "mark"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var guard Guard
	for name, g := range map[string]struct {
		hook    *func(Token, error)
		do      func(Token, func() error) error
		once    func(Token, func() error) error
		claim   func(Token) error
		current func() Token
	}{
		"Guard": {&guard.Refused, guard.Do, guard.DoOnce, guard.Claim, guard.Current},
		"File": {&file.Refused, file.Do, file.DoOnce, file.Claim, func() Token {
			mark, err := file.Current()
			if err != nil {
				t.Error(err)
			}
			return mark
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []refusal
			*g.hook = func(token Token, err error) {
				told = append(told, refusal{token, err})
				if mark := g.current(); mark > 5 { // the lock is free
					t.Errorf("the mark is %d", mark)
				}
			}
			failed := errors.New("the write failed")
			nested := &StaleError{Token: 1, Seen: 2} // of another guard, inside the write
			for _, admitted := range []error{
				g.claim(5),
				g.do(5, noWrite),
			} {
				if admitted != nil {
					t.Error(admitted)
				}
			}
			if err := g.do(5, func() error { return failed }); err != failed {
				t.Error(err)
			}
			if err := g.do(5, func() error { return nested }); err != nested {
				t.Error(err)
			}
			if len(told) > 0 {
				t.Errorf("told %v of admitted calls", told)
			}
			for _, refused := range []struct {
				token Token
				err   error
				is    error
			}{
				{4, g.do(4, noWrite), ErrStale},
				{5, g.once(5, noWrite), ErrStale},
				{3, g.claim(3), ErrStale},
				{0, g.do(0, noWrite), ErrUnfenced},
			} {
				if len(told) == 0 {
					t.Fatalf("token %d: not told", refused.token)
				}
				if told[0] != (refusal{refused.token, refused.err}) || !errors.Is(refused.err, refused.is) {
					t.Errorf("token %d: told %v, returned %v", refused.token, told[0], refused.err)
				}
				told = told[1:]
			}
			if len(told) > 0 {
				t.Errorf("told %v twice", told)
			}
		})
	}
}
