package locks

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"maps"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Elected describes the leader: the holder of the key, by Elect, Do or Acquire.
// If there is no leader, Token is 0 and all other fields but Value are empty.
type Elected struct {
	Client string // its Options.Name
	Node   string // the member on which the client runs
	Self   bool   // this very client leads, in its present session
	Token  fence.Token
	Meta   map[string]string // attached with the option Meta
	Value  []byte            // left with the key by Lock.SetValue, by this leader or an earlier one: an address, for example
}

// Observe yields the present leader of key, and then the new leader after each
// change, also when there is none, or when the key's value has changed. Terms that
// are over before the loop's body runs may be skipped, but never the latest, and
// tokens never fall. A grant with an expired session is no longer the leader's,
// even while its delay keeps the key taken.
//
// A yielded term may be over when the body runs. Use Observe to find the
// leader; the leader must check its own lock. The sequence ends like Watch's. The
// body may write into the yielded Meta and Value.
func (c *Client) Observe(ctx context.Context, key string) iter.Seq2[Elected, error] {
	return func(yield func(Elected, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkKey(key)); err != nil {
			yield(Elected{}, err)
			return
		}
		var last *Elected
		q := replica.Query{Key: key, Waiters: replica.MaxListed, Value: true}
		for a, err := range c.follow(ctx, q, c.isFinal) {
			if err != nil {
				yield(Elected{}, callError("watch", key, err))
				return
			}
			now := c.elected(a.Status)
			if last != nil && now.same(*last) {
				continue // for example, only the queue has changed
			}
			last = &now
			told := now // another copy for the loop's body, which may write into it
			told.Meta, told.Value = maps.Clone(now.Meta), bytes.Clone(now.Value)
			if !yield(told, nil) {
				return
			}
		}
	}
}

// elected returns the leader in a state: the newest holder. There is at most
// one holder unless the key is shared.
func (c *Client) elected(m machine.Status) Elected {
	e := Elected{Value: bytesOf(m.Value)}
	for _, h := range m.Holders {
		if !h.Delayed {
			e.Client, e.Node, e.Self, e.Token = h.Client, h.Node, c.isSelf(h.Session), fence.Token(h.Token)
			e.Meta = decodeMeta(h.Meta)
		}
	}
	return e
}

func (e Elected) same(o Elected) bool {
	return e.Client == o.Client && e.Node == o.Node && e.Self == o.Self && e.Token == o.Token &&
		maps.Equal(e.Meta, o.Meta) && bytes.Equal(e.Value, o.Value)
}
