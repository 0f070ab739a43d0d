//go:build mutants

package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

// Every mutant finds its text in the tree as the tree stands: a quick check after a
// change, without building a mutant.
func TestEveryMutantApplies(t *testing.T) {
	for _, m := range allMutants() {
		t.Run(m.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../..", m.file))
			if err != nil {
				t.Fatal(err)
			}
			m.plant(t, string(text))
		})
	}
}
