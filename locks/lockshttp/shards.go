package lockshttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

const (
	maxName   = 506 // bytes of a name of Spread
	maxGroups = 32  // names of a document
)

func (h *handler) serveShards(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "name", "view")
	if err != nil {
		return err
	}
	name, err := textOf(q, "name", maxName)
	if err != nil {
		return err
	}
	view, err := choiceOf(q, "view", viewAuto, viewLocal)
	if err != nil {
		return err
	}
	list := h.c.LocalNames("", maxGroups)
	names := list.Names
	if q.Has("name") {
		names = []string{name}
	}
	// A voter's table has everything. Another member has its own shards alone, and asks
	// for the map of the one name that a request is about.
	var mapped *locks.Shards
	if list.Source.From == string(documents.SourceOwn) && len(names) == 1 && names[0] != "" {
		following, stop := context.WithCancel(r.Context())
		defer stop()
		h.ask(r, view, func(ctx context.Context) (err error) {
			defer context.AfterFunc(ctx, stop)()
			mapped, err = h.c.Shards(following, names[0])
			return err
		})
	}
	doc := documents.Shards{Head: h.head(mapped != nil, list.Source), Groups: []documents.Group{}, More: list.Next != "" && !q.Has("name")}
	for _, name := range names {
		if mapped != nil {
			doc.Groups = append(doc.Groups, mappedGroup(name, mapped))
		} else {
			doc.Groups = append(doc.Groups, h.localGroup(name))
		}
	}
	return writeJSON(w, http.StatusOK, doc)
}

// owners collects the shards of each owner of a group.
type owners struct {
	list    []documents.Owner
	shards  [][]int // of the owner at the same place
	missing []int
}

// of returns the place of an owner, who is added if need be.
func (o *owners) of(d documents.Owner) int {
	i := slices.IndexFunc(o.list, func(e documents.Owner) bool { return e.Client == d.Client && e.Node == d.Node && e.Self == d.Self })
	if i < 0 {
		i = len(o.list)
		o.list = append(o.list, d)
		o.shards = append(o.shards, nil)
	}
	return i
}

func (o *owners) caller(c locks.Caller) {
	i := o.of(documents.Owner{Client: c.Client, Node: c.Node, Self: c.Self})
	d := &o.list[i]
	d.Assigned += c.Shards
	d.Weight, d.Succeeds, d.Absent, d.Next = c.Weight, c.Succeeds, c.Absent, c.Next
}

func (o *owners) owns(shard int, owner locks.Owner) {
	i := o.of(documents.Owner{Client: owner.Client, Node: owner.Node, Self: owner.Self})
	o.list[i].Meta = owner.Meta
	o.shards[i] = append(o.shards[i], shard)
}

func (o *owners) group(name string, shards, resizing int) documents.Group {
	for i, s := range o.shards {
		o.list[i].Shards, o.list[i].Owned = ranges(s), len(s)
	}
	if o.list == nil {
		o.list = []documents.Owner{}
	}
	return documents.Group{Name: name, Shards: shards, Resizing: resizing, Owners: o.list, Orphans: ranges(o.missing)}
}

// localGroup describes a group as this member knows it by itself.
func (h *handler) localGroup(name string) documents.Group {
	var o owners
	page := h.c.LocalShards(name, 0, 0)
	for _, c := range page.Callers {
		o.caller(c)
	}
	next := 0
	for {
		for _, s := range page.Owners {
			for ; next < s.Shard; next++ {
				o.missing = append(o.missing, next)
			}
			next = s.Shard + 1
			o.owns(s.Shard, s.Owner)
		}
		if page.Next == 0 {
			break
		}
		page = h.c.LocalShards(name, page.Next, 0)
	}
	for ; next < page.Shards; next++ {
		o.missing = append(o.missing, next)
	}
	if page.Source.From == string(documents.SourceOwn) {
		o.missing = nil // owned by others, as far as this member knows
	}
	return o.group(name, page.Shards, page.Resizing)
}

// mappedGroup describes a group as the leader has told it.
func mappedGroup(name string, m *locks.Shards) documents.Group {
	var o owners
	for _, c := range m.Callers() {
		o.caller(c)
	}
	for shard := range m.Len() {
		if owner, ok := m.Owner(shard); ok {
			o.owns(shard, owner)
		} else {
			o.missing = append(o.missing, shard)
		}
	}
	to, _ := m.Resizing()
	return o.group(name, m.Len(), to)
}
