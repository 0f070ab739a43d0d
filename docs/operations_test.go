package docs

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The page for operators has a row for each alert, in the order of the rules.
func TestOperationsHaveEveryAlert(t *testing.T) {
	rules, rows := names(t, "alerts/wardmote.rules.yml", `(?m)^ +- alert: (\w+)$`), names(t, "operations.md", "(?m)^\\| `(Wardmote\\w+)` \\|")
	if len(rules) < 10 || !slices.Equal(rules, rows) {
		t.Errorf("the rules are %q, the rows %q", rules, rows)
	}
}

// names returns the submatches of a pattern in a file.
func names(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(b, -1) {
		found = append(found, string(m[1]))
	}
	return found
}
