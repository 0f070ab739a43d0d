package fence

import (
	"errors"
	"fmt"
)

// ErrStale matches every *StaleError.
var ErrStale = errors.New("fence: token is stale")

// ErrUnfenced refuses token zero. The refused call has changed nothing.
var ErrUnfenced = errors.New("fence: token 0 is no token")

// StaleError reports a token that a guard refused. The write has not run and the
// mark is unchanged. The refusal is final: no later try with this token succeeds.
// The caller should give up its grant, with this error as the cause.
type StaleError struct {
	Token Token // the token refused
	Seen  Token // the guard's mark; equal to Token only if DoOnce refused
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
// every token, because the lost mark may have been higher than any token.
//
// A person must decide on the repair:
//
//  1. Stop every process that uses the guard.
//  2. Find a token above all tokens granted so far. The token of any new grant is
//     above them.
//  3. Remove the mark file and its lock file.
//  4. Call Claim with the new token.
type CorruptError struct {
	Path   string // of the damaged file
	Reason string // for example "checksum does not match"
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("fence: %s is corrupt: %s; to repair it, stop the guard's processes, remove the mark file and its %s file, and claim a token above all granted",
		e.Path, e.Reason, lockSuffix)
}
