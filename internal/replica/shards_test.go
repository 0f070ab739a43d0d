package replica

import (
	"fmt"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
)

func TestShardsArePacked(t *testing.T) {
	held := func(key string, session byte, token machine.Token, meta string) machine.Status {
		return machine.Status{Key: key, Holders: []machine.Grant{{
			Session: machine.SessionID{session}, Client: fmt.Sprint("c", session), Node: "n", Token: token, SessionMeta: meta,
		}}}
	}
	a := Scanned{Version: 9, More: true, Keys: []machine.Status{
		held("a/b/0", 1, 100, ""), {Key: "a/b/1"}, held("a/b/16383", 2, 1<<60, "two"), held("a/b/7", 1, 102, "one"),
		held("a/b/01", 1, 103, ""), held("a/b/c/3", 1, 104, ""), held("a/b/x", 1, 105, ""),
	}}
	a.PackShards("a/b/")
	if len(a.Keys) != 0 || a.Last != "a/b/x" || len(a.Owners) != 2 || !a.More || a.Version != 9 {
		t.Errorf("%+v", a)
	}
	var got []string
	for o := range a.Unpacked() {
		if o.Token == 0 {
			got = append(got, fmt.Sprint(o.Shard, " free"))
			continue
		}
		got = append(got, fmt.Sprint(o.Shard, " ", o.Owner.Client, " ", o.Owner.SessionMeta, " ", o.Token))
	}
	want := "[0 c1 one 100 1 free 16383 c2 two 1152921504606846976 7 c1 one 102]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	// Bytes of another version, or of a liar, end the list.
	for n := range a.Shards {
		b := a
		b.Shards = a.Shards[:n]
		for o := range b.Unpacked() {
			if o.Token != 0 && o.Owner == nil || o.Shard >= machine.MaxShards {
				t.Errorf("%d bytes: %+v", n, o)
			}
		}
	}
	for _, bad := range [][]byte{{0x80}, {0, 3, 1}, {0, 1}, {0xff, 0xff, 0xff, 1, 0}} {
		b := Scanned{Shards: bad, Owners: a.Owners}
		for o := range b.Unpacked() {
			t.Errorf("%x: %+v", bad, o)
		}
	}
}
