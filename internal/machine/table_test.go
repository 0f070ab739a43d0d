package machine

import (
	"fmt"
	"testing"
)

func TestHashesNeverChange(t *testing.T) {
	if k, s, r := hashKey("invoices"), hashSession(session16("a")), hashRequest(requestID{session16("a"), 1 << 40}); k != 215 || s != 224 || r != 246 {
		t.Errorf("hashes %d, %d, %d: images of before would be refused", k, s, r)
	}
	n := make(map[uint8]int)
	for i := range 256 * 100 {
		n[hashKey(fmt.Sprintf("tenant/%d/invoices", i))]++
	}
	for shard, n := range n {
		if n < 50 || n > 200 {
			t.Errorf("shard %d has %d keys of 25,600", shard, n)
		}
	}
}
