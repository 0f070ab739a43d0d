package replica

import (
	"encoding/binary"
	"iter"

	"github.com/wardmote/wardmote/internal/machine"
)

// ShardOwner owns shards: the session of a holder.
type ShardOwner struct {
	Session     machine.SessionID // zero: the session has ended, and the key's delay keeps it held
	Client      string
	Node        string
	SessionMeta string // empty in an answer that has no room
}

// PackShards replaces Keys, all with the prefix of a group's name and "/", by the shards
// of the group among them, with their first holders. Hundreds of members follow thousands
// of shards that change together: a shard takes a small part of the bytes of a key's
// Status, and each owner stands in the answer once. MaxScanned shards always find room in
// a frame.
//
// Shards is, for each shard: its number, the position of its owner in Owners plus 1, or
// 0 if the shard is free, and then the token; each as a uvarint.
func (a *Scanned) PackShards(prefix string) {
	index := make(map[ShardOwner]uint64)
	for i := range a.Keys {
		st := &a.Keys[i]
		a.Last = st.Key
		group, shard, ok := machine.ShardOf(st.Key)
		if !ok || len(group) != len(prefix)-1 { // the key of another group, or of none
			continue
		}
		a.Shards = binary.AppendUvarint(a.Shards, uint64(shard))
		if len(st.Holders) == 0 {
			a.Shards = append(a.Shards, 0)
			continue
		}
		h := &st.Holders[0]
		owner := ShardOwner{Session: h.Session, Client: h.Client, Node: h.Node} // as one owner, with a meta or without
		at := index[owner]
		if at == 0 {
			at = uint64(len(a.Owners) + 1)
			index[owner] = at
			a.Owners = append(a.Owners, owner)
		}
		if h.SessionMeta != "" {
			a.Owners[at-1].SessionMeta = h.SessionMeta
		}
		a.Shards = binary.AppendUvarint(a.Shards, at)
		a.Shards = binary.AppendUvarint(a.Shards, uint64(h.Token))
	}
	a.Keys = nil
}

// OwnedShard is a shard and its owner. A shard without an owner has Token 0.
type OwnedShard struct {
	Shard uint32
	Owner *ShardOwner
	Token machine.Token
}

// Unpacked yields the packed shards, up to the first that is malformed.
func (a *Scanned) Unpacked() iter.Seq[OwnedShard] {
	return func(yield func(OwnedShard) bool) {
		b, bad := a.Shards, false
		next := func() uint64 {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				bad = true
				return 0
			}
			b = b[n:]
			return v
		}
		for len(b) > 0 {
			shard, at := next(), next()
			o := OwnedShard{Shard: uint32(shard)}
			if at > 0 && at <= uint64(len(a.Owners)) {
				o.Owner, o.Token = &a.Owners[at-1], machine.Token(next())
			}
			if bad || shard >= machine.MaxShards || at > uint64(len(a.Owners)) || !yield(o) {
				return
			}
		}
	}
}
