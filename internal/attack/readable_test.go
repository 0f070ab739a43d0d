package attack

import (
	"bytes"
	"math/rand/v2"
	"testing"

	imember "github.com/wardmote/wardmote/internal/member"
)

// TestWhatThePathCanRead: what members say in the clear is found among other bytes, and
// random bytes read as nothing.
func TestWhatThePathCanRead(t *testing.T) {
	noise := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(noise)
	if found := readable(noise); found != nil {
		t.Errorf("noise: %q", found)
	}
	for _, word := range []string{"held-3", "fresh-1", memberURI("m1"), imember.RaftID("m2", rand.Uint64()|1<<60)} {
		at := len(noise) / 2
		if found := readable(append(bytes.Clone(noise[:at]), word+string(noise[at:])...)); len(found) != 1 {
			t.Errorf("%q among noise: %q", word, found)
		}
	}
}
