package arch

import (
	"os"
	"strings"
	"testing"
)

// The README's program compiles: it is examples/nightly without the package
// comment.
func TestReadmeProgramIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../examples/nightly/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(example), "package main\n")
	if lines := strings.Count(program, "\n") + 1; lines > 20 {
		t.Errorf("the first program has %d lines, and a visitor reads 20", lines)
	}
	if !ok || !strings.Contains(string(readme), "```go\npackage main\n"+program+"```\n") {
		t.Error("README.md does not show examples/nightly/main.go as it is")
	}
}
