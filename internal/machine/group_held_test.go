package machine

import (
	"fmt"
	"testing"
)

// A held shard is found among any keys below the group's name, and no other key is taken
// for one.
func TestAHeldShardIsFound(t *testing.T) {
	for _, others := range []int{0, 10, 2 * maxInUse} {
		s := founded()
		for by := byte(1); by <= 2; by++ {
			apply(t, s, Open{Session: SessionID{by}, Client: "c", Node: "n", TTL: 3000}, OK)
		}
		seq := uint64(0)
		acquire := func(by byte, key string, want Code) Token {
			seq++
			out, _ := apply(t, s, Acquire{Session: SessionID{by}, Seq: seq, Key: key}, want)
			return out.Token
		}
		for i := range others {
			acquire(1, fmt.Sprint("g/x", i), Granted)
		}
		for _, key := range []string{"g", "g/01", "g/8", "g/9", "g/-1", "g/1/2", "g/x/3", "h/1"} {
			acquire(1, key, Granted)
		}
		if shard, held := s.heldShard("g", 8); held {
			t.Errorf("beside %d keys: shard %d is free", others, shard)
		}
		token := acquire(1, "g/7", Granted)
		acquire(2, "g/7", Queued)
		if shard, held := s.heldShard("g", 8); !held || shard != 7 {
			t.Errorf("beside %d keys: %d, %v", others, shard, held)
		}
		if _, held := s.heldShard("g", 7); held {
			t.Errorf("beside %d keys: shard 7 of 7", others)
		}
		apply(t, s, Release{Session: SessionID{1}, Token: token}, OK)
		if _, held := s.heldShard("g", 8); !held {
			t.Errorf("beside %d keys: the next owner is not seen", others)
		}
	}
}
