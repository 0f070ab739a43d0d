package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every line of the log is a fixed phrase with its facts as attributes, so that an
// operator can search for it; and a line above Debug ends with the next action.
func TestLogLinesAreFixedPhrasesWithANextAction(t *testing.T) {
	files, err := readTree(findRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	lines, told := 0, make(map[string]bool)
	for _, f := range files {
		if f.isTest() || matches(append(free, "internal/logging"), f.dir()) {
			continue
		}
		if err := f.parse(); err != nil {
			t.Fatal(err)
		}
		n, loud, broken := checkLog(f)
		lines += n
		for _, b := range broken {
			t.Error(b)
		}
		for _, text := range loud {
			told[text] = true
		}
	}
	if lines < 20 {
		t.Errorf("only %d lines found", lines)
	}
	// These lines are not written with their phrase: see cluster/tell.go and silence.go.
	for _, text := range []string{"quorum lost", "conflict", "node failed", "no leader", "no cluster yet"} {
		told[text] = true
	}
	page, err := os.ReadFile(filepath.Join(findRoot(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range checkOperations(string(page), told) {
		t.Error(b)
	}
}

// checkOperations compares the headings of the page for operators with the phrases of
// all lines of level Warn and Error.
func checkOperations(page string, told map[string]bool) (broken []string) {
	explained := make(map[string]bool)
	_, lines, _ := strings.Cut(page, "\n## Log lines\n")
	for line := range strings.Lines(lines) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			explained[text] = true
		}
	}
	for text := range told {
		if !explained[text] {
			broken = append(broken, fmt.Sprintf("docs/operations.md does not explain the line %q", text))
		}
	}
	for text := range explained {
		if !told[text] {
			broken = append(broken, fmt.Sprintf("docs/operations.md explains %q, which nothing logs", text))
		}
	}
	return broken
}

var (
	loggers = []string{"Log", "Logger", "log"} // also of a call
	levels  = []string{"Debug", "Info", "Warn", "Error"}
	phrase  = regexp.MustCompile(`^[a-z][^%]*[a-zA-Z]$`)
	key     = regexp.MustCompile(`^[a-z]+$`)
)

// checkLog returns the number of log lines in a file, the phrases of level Warn and Error,
// and the unsound lines.
func checkLog(f *file) (lines int, loud, broken []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(levels, method.Sel.Name) || !slices.Contains(loggers, lastName(method.X)) {
			return true
		}
		lines++
		complain := func(why string) {
			broken = append(broken, fmt.Sprintf("%s: %s", f.fset.Position(call.Pos()), why))
		}
		text, ok := literal(call.Args[0])
		if !ok || !phrase.MatchString(text) {
			complain("the phrase is not fixed and lower-case")
		}
		if method.Sel.Name == "Warn" || method.Sel.Name == "Error" {
			loud = append(loud, text)
		}
		last := ""
		for i := 1; i < len(call.Args); i += 2 {
			if last, ok = literal(call.Args[i]); !ok || !key.MatchString(last) {
				complain("an attribute's key is not a lower-case word")
			}
		}
		if method.Sel.Name != "Debug" && last != "next" {
			complain(`a line above Debug ends with the attribute "next": say what an operator does`)
		}
		return true
	})
	return lines, loud, broken
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	}
	return ""
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

func TestTheLogRuleBites(t *testing.T) {
	for _, tt := range []struct {
		line string
		want int
	}{
		{`n.self.Log.Debug("join", "error", err)`, 0},
		{`cfg.Logger.Warn("disk is full", "error", err, "next", "make room")`, 0},
		{`cfg.Logger.Info("leading", "term", 1)`, 1},
		{`cfg.Logger.Error("disk is full", "next", "make room", "error", err)`, 1},
		{`log.Warn("Disk is full", "next", "make room")`, 1},
		{`log.Debug("disk " + name)`, 1},
		{`log.Debug("disk %s", "disk", name)`, 1},
		{`log.Debug("disk is full", "table term", 1)`, 1},
		{`t.Error(1)`, 0},
	} {
		f := &file{name: "cluster/x.go", text: "package cluster\nfunc f() { " + tt.line + " }"}
		if err := f.parse(); err != nil {
			t.Fatal(err)
		}
		if _, _, broken := checkLog(f); len(broken) != tt.want {
			t.Errorf("%s: %s", tt.line, strings.Join(broken, "; "))
		}
	}
}

func TestAnUnexplainedLineIsFound(t *testing.T) {
	told := map[string]bool{"disk is full": true, "disk is slow": true}
	broken := checkOperations("### intro\n## Log lines\n### disk is full\ntext\n### disk is gone\n", told)
	if len(broken) != 2 {
		t.Errorf("found %q", broken)
	}
}
