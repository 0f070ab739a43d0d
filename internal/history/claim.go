package history

import "strings"

// A claim is the part of a request or a grant that decides about conflicts.
type claim struct {
	keys []string
	mode Mode
	tree bool
}

func (o *Op) claim() claim   { return claim{o.Keys, o.mode(), o.Tree} }
func (h *Hold) claim() claim { return claim{h.Keys, h.mode(), h.Tree} }

// conflicts reports whether two grants with these claims exclude each other. Permits do not
// exclude permits here: their sum is bounded by the capacity.
func (c claim) conflicts(o claim) bool {
	if c.mode == o.mode && c.mode != Exclusive {
		return false
	}
	return c.meets(o)
}

// meets reports whether a key of one claim is, or is above or below, a key of the other.
func (c claim) meets(o claim) bool {
	for _, a := range c.keys {
		for _, b := range o.keys {
			if a == b || c.tree && below(b, a) || o.tree && below(a, b) {
				return true
			}
		}
	}
	return false
}

// below reports whether the path a is below b.
func below(a, b string) bool {
	return len(a) > len(b)+1 && a[len(b)] == '/' && strings.HasPrefix(a, b)
}

// root returns the first segment of a path. Claims that meet have a root in common.
func root(key string) string {
	first, _, _ := strings.Cut(key, "/")
	return first
}

// components divides claims into groups that meet no claim of another group, nor their
// roots: the result has the number of the group of each claim.
func components(claims []claim) []int {
	parent := make([]int, len(claims))
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	byRoot := make(map[string]int)
	for i, c := range claims {
		parent[i] = i
		for _, k := range c.keys {
			r := root(k)
			if j, known := byRoot[r]; known {
				parent[find(i)] = find(j)
			} else {
				byRoot[r] = i
			}
		}
	}
	for i := range parent {
		parent[i] = find(i)
	}
	return parent
}
