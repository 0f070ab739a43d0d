package fence

import "errors"

// ErrUnknown matches the error of a write whose answer was lost: the write has
// happened, has not happened, or happens in a moment. The token is not stale. Read the
// resource again under the same token, and repeat the write if the write is not there.
var ErrUnknown = errors.New("fence: the answer to the write was lost")

// ErrNotClaimed refuses a write under a token that was never claimed, by a guard that
// asks for Claim before the first write. The refused call has changed nothing.
var ErrNotClaimed = errors.New("fence: the token was not claimed")
