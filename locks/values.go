package locks

import (
	"cmp"
	"context"
	"iter"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Value is the value left with a key, by Cell.Update or Lock.SetValue.
type Value struct {
	Key  string
	Data []byte

	// Token is the token of the key's last grant, for the option IfToken. The value was
	// left under Token or under an earlier token.
	Token fence.Token

	// Clean says that the last exclusive holder released the key by itself, as in
	// Lock.Value and Status: if not, that holder was lost, maybe in the middle of a
	// change that the value does not show. The present holder does not count.
	Clean bool
}

// Values yields, in ascending order, each key that begins with prefix and has a value,
// with the value; an empty prefix stands for all keys. Results of Once are not among
// them. Cell.Update to an empty value deletes a value: the key is then not yielded any
// more, and its place among the cluster's 65,536 values is free.
//
// Values needs no session and waits for no holder. The values come in pages of up to 256
// keys and about 256 KiB. Each page shows one moment during the call, and a later page a
// later moment. A key that gets, loses or changes its value meanwhile may be yielded
// with either; a key whose value does not change is yielded once, also if the leader
// changes meanwhile. To follow one value, use Cell.Watch.
//
// The sequence ends after the last key, or when the loop breaks, or with an error like
// List's.
func (c *Client) Values(ctx context.Context, prefix string) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkPrefix(prefix)); err != nil {
			yield(Value{}, err)
			return
		}
		q := replica.ValuesQuery{Prefix: prefix, From: max(prefix, firstKey), Limit: replica.MaxScanned}
		for {
			a, err := readUntilClosed(ctx, c, func(ctx context.Context) (replica.ValuesPage, error) { return c.rep.Values(ctx, q) })
			if err != nil {
				yield(Value{}, callError("list the values of", prefix, err))
				return
			}
			for _, v := range a.Values {
				if !yield(newValue(v), nil) {
					return
				}
			}
			if !a.More || len(a.Values) == 0 {
				return
			}
			q.From = a.Values[len(a.Values)-1].Key + "\x00" // the least key that sorts after the last
		}
	}
}

func newValue(v machine.KeyValue) Value {
	return Value{Key: v.Key, Data: []byte(v.Value), Token: fence.Token(v.Token), Clean: !v.Unclean}
}
