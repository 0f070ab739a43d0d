package locks

import (
	"context"
	"iter"
	"reflect"

	"github.com/wardmote/wardmote/fence"
)

// Elected is who leads: whoever holds the key that it was elected for with Elect,
// Do or Acquire. With Token 0 nobody does, and all else is empty.
type Elected struct {
	Client string // its Options.Name
	Node   string // the member it runs on
	Token  fence.Token
	Meta   map[string]string // attached with the option Meta
}

// Observe yields who leads for key at present, and then whoever does after each
// change, vacancy included. Terms that are over before the loop's body has run are
// skipped, but never the latest, and the tokens never fall. A grant whose client
// is gone leads no more, even while its delay keeps the key taken.
//
// What it yields may be over when the body runs: it is for finding the one who
// leads, who has to check its own lock. The sequence ends like that of Watch.
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

// elected is who leads in a state: the newest who holds the key. There is one at
// most unless the key is shared.
func elected(st Status) (e Elected) {
	for _, h := range st.Holders {
		if !h.Delayed {
			e = Elected{Client: h.Client, Node: h.Node, Token: h.Token, Meta: h.Meta}
		}
	}
	return e
}
