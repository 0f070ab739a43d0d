package machine

// Formats let voters of two versions of this program keep equal tables. A table
// begins in format 1. A version with a new command, or a new attribute of Spec,
// raises MaxFormat, and its Format gives the addition the new number. The leader
// raises the table by a Raise once every voter reads the new format. Until then
// Apply refuses the addition as WrongFormat. So no voter ever applies a command that
// another voter would read as Unknown, and every table changes its format at the
// same point of the log. A voter put back to an earlier version may meet a Raise
// above its MaxFormat. Such a voter must stop, because from there on its table
// differs from the others.

// MaxFormat is the latest format of this version, which reads all earlier formats
// too.
const MaxFormat = 1

// Format returns the earliest format that has c.
func Format(Command) int { return 1 }

// formats is the formats of a State.
type formats struct {
	max  int
	next func(encoded []byte) int // tests make up the next format; nil otherwise
}

// of is Format. A made-up format depends on the command's encoding: a command
// passed to a function value would always be on the heap.
func (f *formats) of(c Command) int {
	if f.next != nil {
		return f.next(EncodeCommand(c))
	}
	return Format(c)
}

// Format returns the table's format: see Raise.
func (s *State) Format() int { return int(s.format) }

func (s *State) raise(format uint64) Outcome {
	if format > uint64(s.formats.max) {
		return bad("Format", uint64(s.formats.max))
	}
	s.format = max(s.format, format)
	return Outcome{Code: OK}
}
