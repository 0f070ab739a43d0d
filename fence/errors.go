package fence

import (
	"errors"
	"fmt"
)

// ErrStale matches every *StaleError.
var ErrStale = errors.New("fence: token is stale")

// ErrUnfenced is returned for token zero. Nothing was done.
var ErrUnfenced = errors.New("fence: token 0 is no token")

// StaleError reports a token that a guard refused. The write has not run and
// the mark has not moved. It is final: no later try with this token succeeds, so
// whoever gets it should give up its grant with this error as the cause.
type StaleError struct {
	Token Token // the token refused
	Seen  Token // the guard's mark; equal to Token only where DoOnce refused
}

func (e *StaleError) Error() string {
	if e.Token == e.Seen {
		return fmt.Sprintf("fence: token %d is spent: it has been seen", e.Token)
	}
	return fmt.Sprintf("fence: token %d is stale: %d has been seen", e.Token, e.Seen)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// CorruptError reports that the files of a File are damaged. The guard refuses
// every token, since the mark may have been higher than any that is shown.
//
// The way back is a person's decision: stop every process that uses the guard,
// find a token above all that were granted so far (any grant made from now on
// has one), remove the mark file and its lock file, and Claim that token.
type CorruptError struct {
	Path   string // of the damaged file
	Reason string // for example "checksum does not match"
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("fence: %s is corrupt: %s", e.Path, e.Reason)
}
