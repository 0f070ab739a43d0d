//go:build unix

package docs

import (
	"os"
	"strings"
	"testing"
)

// The block about Recovery.TokenFloor in fencing.md is compiled, as an example.
func TestTheTokenFloorOfFencingIsAnExample(t *testing.T) {
	example, err := os.ReadFile("../cluster/example_floor_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, b := range readBlocks(t, "fencing.md") {
		if !strings.Contains(b.text, "TokenFloor") {
			continue
		}
		found++
		text := "\t" + strings.ReplaceAll(strings.TrimSuffix(b.text, "\n"), "\n", "\n\t") + "\n"
		if !strings.Contains(string(example), text) {
			t.Errorf("no example has\n%s", text)
		}
	}
	if found != 1 {
		t.Errorf("%d blocks", found)
	}
}
