package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A story builds a history from short lines. Each method that names a grant or request by a
// string uses the string as the ID.
type story struct{ History }

// get is an Acquire that is granted, and get of kind Try.
func (s *story) call(kind Kind, id string, key string, call, ret int64, token uint64, change ...func(*Op)) *story {
	o := Op{ID: id, Process: "p" + id, Client: "c" + id, Kind: kind, Keys: strings.Split(key, "+"), Call: call, Return: ret, Outcome: Done, Token: token}
	if token == 0 {
		o.Outcome = Refused
	}
	for _, f := range change {
		f(&o)
	}
	s.Ops = append(s.Ops, o)
	return s
}

func (s *story) get(id, key string, call, ret int64, token uint64, change ...func(*Op)) *story {
	return s.call(Acquire, id, key, call, ret, token, change...)
}

func (s *story) try(id, key string, call, ret int64, token uint64, change ...func(*Op)) *story {
	return s.call(Try, id, key, call, ret, token, change...)
}

// held adds the hold of a grant, as seen until valid.
func (s *story) held(id string, valid int64, how string, change ...func(*Hold)) *story {
	i := slices.IndexFunc(s.Ops, func(o Op) bool { return o.ID == id })
	o := s.Ops[i]
	h := Hold{
		ID: "h" + id + fmt.Sprint(len(s.Holds)), Op: id, Process: o.Process, Client: o.Client, Keys: o.Keys, Mode: o.Mode, N: o.N, Tree: o.Tree, Token: o.Token,
		From: o.Return, Valid: valid, How: how,
	}
	for _, f := range change {
		f(&h)
	}
	s.Holds = append(s.Holds, h)
	return s
}

// of is a call about a grant.
func (s *story) of(kind Kind, grant string, call, ret int64, change ...func(*Op)) *story {
	o := Op{ID: fmt.Sprint(kind, " ", grant, " ", call), Process: "p" + grant, Client: "c" + grant, Kind: kind, Grant: grant, Call: call, Return: ret, Outcome: Done}
	for _, f := range change {
		f(&o)
	}
	s.Ops = append(s.Ops, o)
	return s
}

func (s *story) free(grant string, call, ret int64) *story { return s.of(Release, grant, call, ret) }

func (s *story) mark(at int64, kind, who string) *story {
	s.Marks = append(s.Marks, Mark{At: at, Kind: kind, Who: who})
	return s
}

// Changes of an Op.
func mode(m Mode, n int) func(*Op)  { return func(o *Op) { o.Mode, o.N = m, n } }
func of(n int) func(*Op)            { return func(o *Op) { o.Of = n } }
func err(class string) func(*Op)    { return func(o *Op) { o.Err, o.Outcome = class, Refused } }
func unknown(o *Op)                 { o.Outcome, o.Token = Unknown, 0 }
func tree(o *Op)                    { o.Tree = true }
func lazy(o *Op)                    { o.Lazy = true }
func sticky(o *Op)                  { o.Sticky = true }
func since(t uint64) func(*Op)      { return func(o *Op) { o.If, o.Cond = t, true } }
func queued(at int64) func(*Op)     { return func(o *Op) { o.Queued = at } }
func priority(p int) func(*Op)      { return func(o *Op) { o.Priority = p } }
func newToken(t uint64) func(*Op)   { return func(o *Op) { o.Token = t } }
func value(old, v string) func(*Op) { return func(o *Op) { o.Old, o.Value, o.Outcome = old, v, Done } }
func ran(v string) func(*Op)        { return func(o *Op) { o.Value, o.Ran, o.Outcome = v, true, Done } }
func told1(v string) func(*Op)      { return func(o *Op) { o.Value, o.Outcome = v, Done } }

// A verdict is a claim about a history.
type verdict struct {
	claim string
	check string // the checker that refuses it; "": legal
	story *story
}

// judge checks that the histories are judged as claimed: a legal one by no checker, an
// illegal one by its checker at least.
func judge(t *testing.T, verdicts []verdict) {
	t.Helper()
	for _, v := range verdicts {
		found, made := Judge(v.story.History)
		if made.Undecided != 0 {
			t.Errorf("%s: undecided", v.claim)
		}
		by := make(map[string]bool)
		for _, f := range found {
			by[f.Check] = true
		}
		switch {
		case v.check == "" && len(found) > 0:
			t.Errorf("%s: found %v", v.claim, found)
		case v.check != "" && !by[v.check]:
			t.Errorf("%s: %s found nothing, but %v", v.claim, v.check, found)
		}
	}
}

func tell() *story { return &story{} }
