package machine

import (
	"fmt"
	"testing"
)

// The tokens of blocks are shared among the sessions: none takes more in a second than it
// leaves, so a modest session finds a block however many greedy ones came before. The shares
// are part of the table, and the next second begins anew.
func TestReservedTokensAreShared(t *testing.T) {
	s := founded()
	seqs := make(map[string]uint64)
	take := func(name string) (n uint64) {
		id := session16(name)
		if seqs[name]++; seqs[name] == 1 {
			apply(t, s, Open{Session: id, Client: name, Node: "n", Boot: 1, TTL: 5000}, OK)
		}
		first, _ := apply(t, s, Acquire{Session: id, Seq: seqs[name], Key: fmt.Sprint(name, seqs[name]), Spec: Spec{Block: 16}}, Granted)
		if first.Block == 0 {
			return 0
		}
		n = uint64(first.Block)
		last := first.Token + Token(first.Block)
		for {
			out, _ := apply(t, s, Extend{Session: id, Token: first.Token, Last: last, Block: MaxBlock}, OK)
			if out.Block == 0 {
				break
			}
			if out.Token < last {
				t.Fatalf("a block after %d, although %d is reserved", out.Token, last)
			}
			n, last = n+uint64(out.Block), out.Token+Token(out.Block)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for round := range 3 {
		s.Clock(uint64(1000 * (round + 5)))
		left := uint64(MaxReserved)
		for i := range 6 {
			n := take(fmt.Sprint("s", i))
			if n < left/2-MaxBlock || n > (left+1)/2 {
				t.Errorf("session %d: %d of %d tokens", i, n, left)
			}
			left -= n
			copied, err := restored(s)
			if err != nil {
				t.Fatal(err)
			}
			s = copied
			again := take(fmt.Sprint("s", i))
			if again >= MaxBlock {
				t.Errorf("session %d: %d tokens more than its share", i, again)
			}
			left -= again
		}
	}
}
