package fence

import "sync"

// Guard protects one resource inside one process. Its mark is the highest token
// shown to the guard; the guard admits tokens equal to or above the mark. The zero
// Guard has a mark of zero and is ready. A Guard may be used from any goroutine
// and must not be copied after first use.
//
// A Guard loses its mark when the process ends. If the resource outlives the
// process, use a File, or keep the token in the resource itself.
type Guard struct {
	// Refused, if not nil, is called with each token that the guard refuses, and with
	// the refusal: a *StaleError or ErrUnfenced. A refused token is a holder that went
	// on after the loss of its lock: count and log them. Refused is called on the
	// goroutine of the refused call, before the call returns, and after the guard has
	// let go of its lock: it may call the guard, and a slow Refused delays the refused
	// call alone. The calls of several goroutines may overlap. Set Refused before the
	// first use of the guard.
	Refused func(t Token, refusal error)

	mu   sync.Mutex // locked while write runs: a comparison proves nothing after Unlock
	mark Token
}

// Do raises the mark to t, runs write and returns the error of write. Other calls
// to the guard wait until write has returned. If t is below the mark, Do returns
// a *StaleError; if t is zero, Do returns ErrUnfenced. In both cases Do has
// changed nothing and has not run write.
//
// The mark stays raised when write fails or panics: t was shown, so the grant of
// t exists and every older grant is over, even if the write did not happen. Do
// does not recover the panic. The same token may try again.
//
// Do admits tokens equal to the mark, because one grant covers many writes, and
// a holder that did not hear of its success must be able to repeat the write.
// Only one grant has the token, so no other holder is admitted.
//
// A write that calls its own guard waits for itself for ever.
func (g *Guard) Do(t Token, write func() error) error { return g.do(t, false, write) }

// DoOnce is Do for resources that allow one access per grant. DoOnce also refuses
// a token equal to the mark, with a *StaleError in which Seen equals Token. The
// access is spent even if write fails or panics, or if Do or Claim has shown the
// token; the next access needs a new grant. So do not call Claim first: read
// inside write, when the mark is raised already.
func (g *Guard) DoOnce(t Token, write func() error) error { return g.do(t, true, write) }

// Claim raises the mark to t without writing, and fails like Do. Call Claim once
// for each grant, before the first read of the resource: from then on no earlier
// holder can change the state that was read.
func (g *Guard) Claim(t Token) error { return g.do(t, false, noWrite) }

// Current returns the mark, or zero if no token has been shown. Current waits
// until a running write has returned: after Current has returned, no write of a
// lower token runs or will run.
func (g *Guard) Current() Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mark
}

func (g *Guard) do(t Token, once bool, write func() error) error {
	refusal, err := g.writeAdmitted(t, once, write)
	return told(g.Refused, t, refusal, err)
}

// writeAdmitted runs write if the guard admits t. Otherwise it returns the refusal.
func (g *Guard) writeAdmitted(t Token, once bool, write func() error) (refusal, err error) {
	g.mu.Lock()
	defer g.mu.Unlock() // also if write panics
	if refusal = admit(t, g.mark, once); refusal != nil {
		return refusal, nil
	}
	g.mark = t // before write, because write may panic or never return
	return nil, write()
}

// told returns the error of a call of a guard: refusal if there is one, of which told
// tells the hook first, and err otherwise.
func told(hook func(Token, error), t Token, refusal, err error) error {
	if refusal == nil {
		return err
	}
	if hook != nil {
		hook(t, refusal)
	}
	return refusal
}

// admit is the rule of all guards: admit returns nil if a guard with this mark
// accepts t, and the refusal otherwise. With once, t must be above the mark.
func admit(t, mark Token, once bool) error {
	switch {
	case t == 0:
		return ErrUnfenced
	case t < mark, once && t == mark:
		return &StaleError{Token: t, Seen: mark}
	}
	return nil
}

func noWrite() error { return nil }
