package machine

import "encoding/binary"

// Mode says how an Acquire shares its keys. Modes are part of the log: never
// renumber.
type Mode uint8

const (
	Exclusive Mode = 0 // one holder, and nobody else
	Shared    Mode = 1 // up to MaxHolders shared holders, and nobody else
	Permit    Mode = 2 // as many holders as the capacity that all permits of the key name
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
//  1. internal/machine/spec.go: the field, its bit, and its lines in append,
//     read and check;
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
	Of          uint32 // Permit: the capacity, 1 to MaxHolders
	Delay       uint64 // milliseconds for which the key stays taken after the session expired; for one key only
	IfToken     Token
	Meta        string // up to MaxMeta bytes for readers; the table does not look inside
}

// Bits of an encoded Spec: never renumber. A set bit announces a nonzero attribute;
// the values follow in the order of the bits.
const (
	specMode = 1 << iota
	specOf
	specTree
	specPriority
	specDelay
	specConditional
	specMeta
	specIfToken
	specBits = 1<<iota - 1 // all of them
)

// append appends the encoding of p to b.
func (p *Spec) append(b []byte) []byte {
	if *p == (Spec{}) {
		return append(b, 0)
	}
	set := bit(p.Mode != 0, specMode) |
		bit(p.Of != 0, specOf) |
		bit(p.Tree, specTree) |
		bit(p.Priority != 0, specPriority) |
		bit(p.Delay != 0, specDelay) |
		bit(p.Conditional, specConditional) |
		bit(p.Meta != "", specMeta) |
		bit(p.IfToken != 0, specIfToken)
	b = binary.AppendUvarint(b, set)
	if set&specMode != 0 {
		b = append(b, byte(p.Mode))
	}
	if set&specOf != 0 {
		b = binary.AppendUvarint(b, uint64(p.Of))
	}
	if set&specPriority != 0 {
		b = append(b, byte(p.Priority))
	}
	if set&specDelay != 0 {
		b = binary.AppendUvarint(b, p.Delay)
	}
	if set&specMeta != 0 {
		b = appendBytes(b, p.Meta)
	}
	if set&specIfToken != 0 {
		b = binary.AppendUvarint(b, uint64(p.IfToken))
	}
	return b
}

// read reads into p, which is zero, an encoded Spec.
func (p *Spec) read(r *reader) {
	set := r.bits(specBits)
	p.Tree = set&specTree != 0
	p.Conditional = set&specConditional != 0
	if set&specMode != 0 {
		p.Mode = Mode(r.nonzeroByte())
	}
	if set&specOf != 0 {
		p.Of = r.nonzero32()
	}
	if set&specPriority != 0 {
		p.Priority = int8(r.nonzeroByte())
	}
	if set&specDelay != 0 {
		p.Delay = r.nonzero()
	}
	if set&specMeta != 0 {
		p.Meta = r.text()
	}
	if set&specIfToken != 0 {
		p.IfToken = Token(r.nonzero())
	}
}

// check returns the refusal of attributes over a limit or in contradiction, and the
// zero Outcome if there are none. With set, the request is for a set of keys.
func (p *Spec) check(set bool) Outcome {
	switch {
	case p.Mode > Permit:
		return bad("Mode", uint64(Permit))
	case p.Mode == Permit && (p.Of == 0 || p.Of > MaxHolders), p.Mode != Permit && p.Of != 0:
		return bad("Of", MaxHolders)
	case p.Tree && p.Mode == Permit:
		return bad("Tree", 0)
	case p.Priority != 0 && (set || p.Tree):
		return bad("Priority", 0)
	case p.Delay > MaxDelay, p.Delay > 0 && set:
		return bad("Delay", MaxDelay)
	case p.Conditional && set, !p.Conditional && p.IfToken != 0:
		return bad("IfToken", 0)
	case set && p.Mode == Permit:
		return bad("Keys", 0)
	case len(p.Meta) > MaxMeta:
		return bad("Meta", MaxMeta)
	}
	return Outcome{}
}
