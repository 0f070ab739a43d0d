package fence

import "sync"

// Guard protects one resource inside one process. Its mark is the highest token
// it has seen; it admits tokens that are at least the mark. The zero Guard has
// seen none and is ready. A Guard may be used from any goroutine and must not
// be copied after first use.
//
// A Guard forgets its mark with the process. Where the resource outlives the
// process, use a File, or keep the token in the resource itself.
type Guard struct {
	mu   sync.Mutex // held over write: a comparison is worth nothing once it is let go
	mark Token
}

// Do raises the mark to t and runs write, and no other access to the guard
// happens meanwhile. It returns write's error. If t is below the mark it
// returns a *StaleError, if t is zero ErrUnfenced, and then it has done nothing.
//
// The mark stays raised when write fails or panics: t has been shown, so its
// grant exists and every older one is over, whatever became of the write. The
// panic is passed on. The same token may try again.
//
// Tokens equal to the mark are admitted, because one grant covers many writes,
// and a holder that did not hear of its success must be able to repeat it. Only
// one grant has that token, so nobody else slips through.
//
// A write must not use its own guard: it would wait for itself.
func (g *Guard) Do(t Token, write func() error) error {
	return g.do(t, false, write)
}

// DoOnce is Do for resources that allow one access per grant: it refuses the
// mark itself too, with a *StaleError whose Seen equals Token. The access is
// spent even if write fails or panics, or if the token came by Do or Claim; the
// next needs a new grant. So do not Claim first: read inside write, where the
// token has been shown already.
func (g *Guard) DoOnce(t Token, write func() error) error {
	return g.do(t, true, write)
}

// Claim raises the mark to t without writing, and fails as Do does. Call it once
// for each grant, before the first read of the resource: from then on no write
// of an earlier holder can change what was read.
func (g *Guard) Claim(t Token) error {
	return g.do(t, false, nothing)
}

// Current returns the mark, zero if no token has been seen. It waits for a write
// under way: when it returns, no write of a lower token is running, and none
// will.
func (g *Guard) Current() Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mark
}

func (g *Guard) do(t Token, once bool, write func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock() // a panicking write lets the next one in
	if err := admit(t, g.mark, once); err != nil {
		return err
	}
	g.mark = t // before write, which may not return
	return write()
}

// admit is the rule of every guard in this package.
func admit(t, mark Token, once bool) error {
	switch {
	case t == 0:
		return ErrUnfenced
	case t < mark, once && t == mark:
		return &StaleError{Token: t, Seen: mark}
	}
	return nil
}

func nothing() error { return nil }
