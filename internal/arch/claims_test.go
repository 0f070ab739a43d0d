package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")

// The documents name tests as the proof of their claims: each exists. And each row of
// SECURITY.md's table of attackers and targets names one, or says why there is none.
func TestClaimsNameTheirTests(t *testing.T) {
	root := findRoot(t)
	docs, err := readDocuments(root)
	if err != nil {
		t.Fatal(err)
	}
	files, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	for _, f := range files {
		if !f.isTest() {
			continue
		}
		if err := f.parse(); err != nil {
			t.Fatal(err)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[fn.Name.Name] = true
			}
		}
	}
	named, broken := checkNamed(docs, tests)
	rows, bare := checkRows(docs["SECURITY.md"])
	for _, b := range append(broken, bare...) {
		t.Error(b)
	}
	if named < 20 || rows < 15 {
		t.Errorf("only %d tests named, and %d rows", named, rows)
	}
}

// checkNamed returns the number of tests that documents name, and those that do not exist.
func checkNamed(docs map[string]string, tests map[string]bool) (named int, broken []string) {
	for name, text := range docs {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			named++
			if !tests[m[1]] {
				broken = append(broken, fmt.Sprintf("%s: there is no %s", name, m[1]))
			}
		}
	}
	slices.Sort(broken)
	return named, broken
}

// checkRows returns the number of rows in the table of attackers, and the rows without a
// test or a reason in the last column, or with an empty verdict.
func checkRows(text string) (rows int, broken []string) {
	_, table, _ := strings.Cut(text, "| attacker | target |")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[min(2, len(lines)):] {
		rows++
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		shown := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case len(cells) != 7 || slices.ContainsFunc(cells[1:], func(c string) bool { return strings.TrimSpace(c) == "" }):
			broken = append(broken, "SECURITY.md: a row with an empty cell: "+line)
		case !testName.MatchString(shown) && !strings.HasPrefix(shown, "nobody can"):
			broken = append(broken, "SECURITY.md: a row that names no test: "+line)
		}
	}
	return rows, broken
}

func TestABareClaimIsFound(t *testing.T) {
	text := "| attacker | target | a | b | c | d | shown by |\n|---|---|---|---|---|---|---|\n" +
		"| x | y | open | open | open | open | `TestThere` |\n" +
		"| | z | open | open | open | open | nobody can: see below |\n"
	docs := map[string]string{"SECURITY.md": text + "\nEnd (`TestGone`)."}
	if n, broken := checkNamed(docs, map[string]bool{"TestThere": true}); n != 2 || len(broken) != 1 {
		t.Errorf("%d tests, %q", n, broken)
	}
	if n, broken := checkRows(docs["SECURITY.md"]); n != 2 || len(broken) != 0 {
		t.Errorf("%d rows, %q", n, broken)
	}
	for _, bad := range []string{"| | z | open | open | | open | `TestThere` |", "| | z | open | open | open | open | |", "| | z | open | open | open | open | trust us |"} {
		if _, broken := checkRows(strings.Replace(text, "| | z", bad+"\n| | z", 1)); len(broken) != 1 {
			t.Errorf("%s: %q", bad, broken)
		}
	}
}
