package machine

// Mode says how an Acquire shares its keys. Modes are part of the log: never
// renumber.
type Mode uint8

const (
	Exclusive Mode = 0 // one holder, and nobody else
	Shared    Mode = 1 // up to MaxHolders shared holders, and nobody else
	Permit    Mode = 2 // N permits of the key, whose capacity bounds the permits held: see capacity.go
)

// Spec holds the attributes of an Acquire that the table keeps. The command embeds a
// Spec, and so do the resulting waiter and grant, and the Waiter and the Grant for
// readers. The zero Spec asks for an exclusive lock without any option.
//
// # How to add an option
//
// This file declares, checks and encodes the attributes, for commands and for
// snapshots alike. A new attribute takes five product files:
//
//  1. internal/machine/spec.go: the field, and its lines in code and check;
//  2. internal/machine/format.go: Format returns the next format for a command
//     that uses the attribute, so that no voter of an earlier version gets it;
//  3. the file of internal/machine where the attribute acts, for example
//     conflict.go, queue.go or grant.go;
//  4. locks/option.go: the public option;
//  5. locks/request.go: the combinations of options that are refused.
//
// An option that counts only on arrival, like Try, belongs to Acquire in
// command.go and codec_command.go instead of to Spec.
type Spec struct {
	Mode        Mode
	Tree        bool   // conflict with the holders above and below the key, by path segment
	Priority    int8   // pass waiters of lower priority, each at most MaxPassed times; for one key only
	Conditional bool   // refuse the grant if the key was granted after IfToken; for one key only
	N           uint16 // Permit: the number of permits taken together, 1 to MaxHolders
	Of          uint16 // Permit: the capacity for a key without one, up to MaxHolders; 0 names none
	Block       uint16 // Exclusive, of one key: tokens to reserve after the grant's own; in a grant, the reserved ones
	Delay       uint64 // milliseconds for which the key stays taken after the session expired; for one key only
	IfToken     Token
	Meta        string // up to MaxMeta bytes for readers; the table does not look inside
}

// code codes p, which is zero before decoding.
func (p *Spec) code(c *coder) {
	if !c.decoding && *p == (Spec{}) { // the common case
		c.out = append(c.out, 0)
		return
	}
	f := c.fields()
	if f.set == 0 && c.decoding {
		return
	}
	octet(&f, &p.Mode)
	integer(&f, &p.Of)
	f.flag(&p.Tree)
	octet(&f, &p.Priority)
	integer(&f, &p.Delay)
	f.flag(&p.Conditional)
	f.text(&p.Meta)
	integer(&f, &p.IfToken)
	integer(&f, &p.N)
	integer(&f, &p.Block)
	f.done()
}

// check returns the refusal of attributes over a limit or in contradiction, and the
// zero Outcome if there are none. With set, the request is for a set of keys.
func (p *Spec) check(set bool) Outcome {
	switch {
	case p.Mode > Permit:
		return bad("Mode", uint64(Permit))
	case (p.Mode == Permit) != (p.N != 0), p.N > MaxHolders:
		return bad("N", MaxHolders)
	case p.Of > MaxHolders, p.Mode != Permit && p.Of != 0:
		return bad("Of", MaxHolders)
	case p.Tree && p.Mode == Permit:
		return bad("Tree", 0)
	case p.Priority != 0 && (set || p.Tree):
		return bad("Priority", 0)
	case p.Delay > MaxDelay, p.Delay > 0 && set:
		return bad("Delay", MaxDelay)
	case p.Conditional && set, !p.Conditional && p.IfToken != 0:
		return bad("IfToken", 0)
	case p.Block > MaxBlock, p.Block > 0 && (set || p.Mode != Exclusive || p.Tree || p.Delay > 0 || p.Conditional):
		return bad("Block", MaxBlock)
	case set && p.Mode == Permit:
		return bad("Keys", 0)
	case len(p.Meta) > MaxMeta:
		return bad("Meta", MaxMeta)
	}
	return Outcome{}
}
