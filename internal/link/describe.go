package link

import "github.com/wardmote/wardmote/internal/wire"

// Describe tells the leader this member's own description, which has changed. The
// leader believes no other source: gossip carries words about any member by any
// member. Describe does not block. Without a leader nothing is told: the next one is
// told as soon as it serves this member.
func (k *Link) Describe() {
	if up, _ := k.current(); up != nil {
		k.describeTo(up)
	}
}

// describeTo tells the leader at the other end of up. Calls do not overlap, so that
// an older description never follows a newer one.
func (k *Link) describeTo(up upstream) {
	if u, ok := up.(*remote); ok {
		k.describing.Lock()
		defer k.describing.Unlock()
		_ = u.stream.Notify(wire.Describe, k.cfg.Describe()) // a stream that has stopped is replaced
	}
}
