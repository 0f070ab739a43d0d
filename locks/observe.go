package locks

import (
	"context"
	"iter"
	"reflect"

	"github.com/wardmote/wardmote/fence"
)

// Elected describes the leader: the holder of the key, by Elect, Do or Acquire.
// If there is no leader, Token is 0 and all other fields are empty.
type Elected struct {
	Client string // its Options.Name
	Node   string // the member on which the client runs
	Token  fence.Token
	Meta   map[string]string // attached with the option Meta
}

// Observe yields the present leader of key, and then the new leader after each
// change, also when there is none. Terms that are over before the loop's body
// runs may be skipped, but never the latest, and tokens never fall. A grant
// with an expired session is no longer the leader's, even while its delay keeps
// the key taken.
//
// A yielded term may be over when the body runs. Use Observe to find the
// leader; the leader must check its own lock. The sequence ends like Watch's.
func (c *Client) Observe(ctx context.Context, key string) iter.Seq2[Elected, error] {
	return func(yield func(Elected, error) bool) {
		var last Elected
		first := true
		for st, err := range c.Watch(ctx, key) {
			if err != nil {
				yield(Elected{}, err)
				return
			}
			now := elected(st)
			if !first && reflect.DeepEqual(now, last) {
				continue
			}
			first, last = false, now
			if !yield(now, nil) {
				return
			}
		}
	}
}

// elected returns the leader in a state: the newest holder. There is at most
// one holder unless the key is shared.
func elected(st Status) (e Elected) {
	for _, h := range st.Holders {
		if !h.Delayed {
			e = Elected{Client: h.Client, Node: h.Node, Token: h.Token, Meta: h.Meta}
		}
	}
	return e
}
