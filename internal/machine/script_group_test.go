package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// groupCommand reads a command about a group. A version of a group or of a part, and the
// version of an absence, is the present one unless the line has "stale".
func (w *words) groupCommand(verb string, s *State) (id SessionID, c Command) {
	version := func(v uint64) uint64 {
		if w.num("stale", 0) != 0 {
			return v - 1
		}
		return v
	}
	switch verb {
	case "enlist":
		id = session16(w.next())
		c = Enlist{
			Session: id, Seq: w.num("seq", 0), Group: textOf(w.next()), Shards: uint32(w.num("shards", 8)),
			Weight: uint32(w.num("weight", 100)), Succeeds: w.text("succeeds", "none"),
			Drain: w.num("drain", 0), Grace: w.num("grace", 0), MaxMoves: uint32(w.num("max-moves", 0)), Seen: w.seqs("seen"),
		}
	case "delist":
		id = session16(w.next())
		c = Delist{Session: id, Seq: w.num("seq", 0), Seen: w.seqs("seen")}
	case "decline":
		id = session16(w.next())
		d := Decline{Session: id, Seq: w.num("seq", 0), Shard: uint32(w.num("shard", 0)), Seen: w.seqs("seen")}
		for _, e := range s.Pending(id) {
			if e.Kind == EventPart && e.Seq == d.Seq {
				d.Version = version(must(DecodePart([]byte(e.Value))).Version)
			}
		}
		c = d
	case "resize":
		id = session16(w.next())
		c = Resize{
			Session: id, Seq: w.num("seq", 0), Group: textOf(w.next()),
			From: uint32(w.num("from", 8)), To: uint32(w.num("to", 16)), Seen: w.seqs("seen"),
		}
	case "assign": // assign g 0-3:1 4-7:2
		a := Assign{Term: w.num("term", s.Term()), Group: w.next()}
		a.Version = version(s.GroupVersion(a.Group))
		for len(w.bare) > 0 {
			shards, caller, _ := strings.Cut(w.next(), ":")
			to, err := strconv.ParseUint(caller, 10, 32)
			if err != nil {
				w.err = err
			}
			for _, shard := range (&words{named: map[string]string{"": shards}}).seqs("") {
				a.Moves = append(a.Moves, Move{uint32(shard), uint32(to)})
			}
		}
		c = a
	case "dismiss":
		d := Dismiss{Term: w.num("term", s.Term()), Group: w.next(), Caller: uint32(w.num("caller", 0))}
		st, _ := s.Group(d.Group)
		for _, by := range st.Callers {
			if by.ID == d.Caller {
				d.Since = version(by.Absent)
			}
		}
		c = d
	case "reshard":
		r := Reshard{Term: w.num("term", s.Term()), Group: w.next()}
		r.Version = version(s.GroupVersion(r.Group))
		c = r
	}
	return id, c
}

// partText prints a part: "g 0-3,7 of 8".
func partText(e Event) string {
	p, err := DecodePart([]byte(e.Value))
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%s %s of %d", e.Key, ranges(p.Mine), p.Shards)
	if p.Resized {
		text += " resized"
	}
	if p.Drain > 0 {
		text += fmt.Sprintf(" drain=%d", p.Drain)
	}
	return text
}

// ranges prints ascending numbers as "0-3,7".
func ranges(list []uint32) string {
	var texts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if text := fmt.Sprint(list[i]); i == j {
			texts = append(texts, text)
		} else {
			texts = append(texts, fmt.Sprintf("%s-%d", text, list[j]))
		}
		i = j + 1
	}
	if texts == nil {
		return "none"
	}
	return strings.Join(texts, ",")
}

func (sc *script) group(group string) {
	p := func(format string, args ...any) { fmt.Fprintf(&sc.out, format, args...) }
	st, ok := sc.s.Group(group)
	if !ok {
		p("unknown %s\n", group)
		return
	}
	p("group   %s shards=%d", group, st.Shards)
	if st.Next > 0 {
		p(" next=%d", st.Next)
	}
	p(" settled=%t orphans=%d", st.Settled, st.Orphans)
	for _, n := range []struct {
		name string
		n    uint64
	}{{"drain", st.Drain}, {"grace", st.Grace}, {"max-moves", uint64(st.MaxMoves)}} {
		if n.n > 0 {
			p(" %s=%d", n.name, n.n)
		}
	}
	p("\n")
	assigned := sc.s.Assignment(group, nil)
	for _, c := range st.Callers {
		var mine []uint32
		for shard, id := range assigned {
			if id == c.ID {
				mine = append(mine, uint32(shard))
			}
		}
		p("caller  %d %s of %s weight=%d", c.ID, name(c.Session), c.Client, c.Weight)
		if c.Next {
			p(" of the next number")
		} else {
			p(" has %s", ranges(mine))
		}
		if c.Succeeds != "" {
			p(" succeeds=%s", c.Succeeds)
		}
		if c.Absent != 0 {
			p(" absent")
		}
		if int(c.Assigned) != len(mine) {
			p(" but is said to have %d", c.Assigned)
		}
		p("\n")
	}
}
