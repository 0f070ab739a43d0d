package machine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestOrderedIsASet compares ordered with a map and a sort.
func TestOrderedIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o ordered
		in := make(map[string]bool)
		for range rapid.IntRange(1, 3000).Draw(t, "n") {
			k := fmt.Sprint(rapid.IntRange(0, 1500).Draw(t, "k"))
			if rapid.IntRange(0, 3).Draw(t, "out") == 0 {
				o.remove(k)
				delete(in, k)
			} else {
				o.add(k)
				in[k] = true
			}
		}
		var want []string
		for k := range in {
			want = append(want, k)
		}
		slices.Sort(want)
		if got := o.all(); !slices.Equal(got, want) {
			t.Fatalf("%q\n%q", got, want)
		}
		first, prefix := fmt.Sprint(rapid.IntRange(0, 1500).Draw(t, "first")), fmt.Sprint(rapid.IntRange(0, 15).Draw(t, "prefix"))
		want = slices.DeleteFunc(want, func(k string) bool { return k < first || !strings.HasPrefix(k, prefix) })
		if got := slices.Collect(o.from(first, prefix)); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("from %q with %q: %q\n%q", first, prefix, got, want)
		}
	})
}
