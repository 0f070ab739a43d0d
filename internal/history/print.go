package history

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Print writes the part of h that concerns v, for people: the calls, grants, runs and
// entries about the keys of v, and all marks, from `before` nanoseconds before the
// violation until `after` after it, one line each in the order of time. At most 200 lines
// are written, those nearest to v.
func (h *History) Print(w io.Writer, v Violation, before, after int64) error {
	var lines []printed
	from, to := v.At-before, max(v.At, min(v.Until, v.At+after))+after
	add := func(at int64, format string, args ...any) {
		if at >= from && at <= to {
			lines = append(lines, printed{at, fmt.Sprintf(format, args...)})
		}
	}
	about := v.roots(h)
	for _, m := range h.Marks {
		add(m.At, "*** %s %s %s", m.Kind, m.Who, m.Text)
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; about(o.Keys, o.ID) || about(nil, o.Grant) {
			add(o.Call, "%s %s calls %s of %v %s", o.Process, o.ID, o.Kind, o.Keys, o.options())
			if o.Return != 0 {
				add(o.Return, "%s %s returns from %s: %s, token %d %s%s", o.Process, o.ID, o.Kind, o.Outcome, o.Token, o.Err, quoted(o.Text))
			}
		}
	}
	for i := range h.Holds {
		if x := &h.Holds[i]; about(x.Keys, x.ID) {
			add(x.From, "%s %s holds %v (%s) under token %d, %s", x.Process, x.Op, x.Keys, x.mode(), x.Token, x.ID)
			if x.Valid != 0 {
				add(x.Valid, "%s %s is told for the last time that token %d is held", x.Process, x.Op, x.Token)
			}
			if x.Done != 0 {
				add(x.Done, "%s %s: the context of token %d has ended (%s %s)", x.Process, x.Op, x.Token, x.How, x.Reason)
			}
		}
	}
	for i := range h.Runs {
		if r := &h.Runs[i]; about([]string{r.Key}, r.ID) {
			add(r.From, "%s %s begins to run %q under token %d", r.Process, r.ID, r.Key, r.Token)
			if r.To != 0 {
				add(r.To, "%s %s has run %q: %s", r.Process, r.ID, r.Key, r.Result)
			}
		}
	}
	for i := range h.Shows {
		if x := &h.Shows[i]; about([]string{x.Key}, x.Watch) {
			add(x.At, "%s %s shows %q, token %d", x.Process, x.Watch, x.Value, x.Token)
		}
	}
	for i := range h.Facts {
		f := &h.Facts[i]
		if len(f.Keys) == 0 || about(f.Keys, "") {
			add(f.At, "    entry %d: %s %s of %s on %s, %v token %d %s", f.Index, f.Kind, f.Session, f.Client, f.Node, f.Keys, f.Token, f.Text)
		}
	}
	slices.SortStableFunc(lines, func(a, b printed) int { return compare(a.at, b.at) })
	const most = 200
	if at := slices.IndexFunc(lines, func(l printed) bool { return l.at >= v.At }); len(lines) > most {
		first := max(0, min(at-most/2, len(lines)-most))
		lines = lines[first : first+most]
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%14s  %s\n", seconds(l.at), l.text); err != nil {
			return err
		}
	}
	return nil
}

// A printed is a line of Print.
type printed struct {
	at   int64
	text string
}

// roots returns a function that reports whether a record concerns v: by its ID, or by keys
// that may meet those of v.
func (v Violation) roots(h *History) func(keys []string, id string) bool {
	roots := make(map[string]bool)
	if v.Key != "" {
		roots[root(v.Key)] = true
	}
	note := func(id string, keys []string) {
		if slices.Contains(v.IDs, id) {
			for _, k := range keys {
				roots[root(k)] = true
			}
		}
	}
	ops := make(map[string]bool)
	for i := range h.Ops {
		note(h.Ops[i].ID, h.Ops[i].Keys)
	}
	for i := range h.Holds {
		note(h.Holds[i].ID, h.Holds[i].Keys)
	}
	about := func(keys []string, id string) bool {
		if id != "" && (slices.Contains(v.IDs, id) || ops[id]) {
			return true
		}
		return slices.ContainsFunc(keys, func(k string) bool { return roots[root(k)] })
	}
	for i := range h.Ops {
		if about(h.Ops[i].Keys, h.Ops[i].ID) {
			ops[h.Ops[i].ID] = true
		}
	}
	return about
}

// options describes a request.
func (o *Op) options() string {
	var b strings.Builder
	word := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	word(o.Mode != "", "(%s)", o.Mode)
	word(o.N != 0, "%d", o.N)
	word(o.Of != 0, "of %d", o.Of)
	word(o.Tree, "tree")
	word(o.Owner != "", "owner %s", o.Owner)
	word(o.Cond, "if %d", o.If)
	word(o.Most != 0, "behind fewer than %d", o.Most)
	word(o.Priority != 0, "priority %d", o.Priority)
	word(o.Lazy, "lazy")
	word(o.Sticky, "sticky")
	word(o.Grant != "", "of the grant %s", o.Grant)
	word(o.Kind == Update, "from %q to", o.Old)
	word(o.Value != "", "%q", o.Value)
	return b.String()
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
