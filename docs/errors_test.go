//go:build unix

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every exported error of the packages for users has its entry in errors.md, and every
// entry its error.
func TestEveryErrorHasItsEntry(t *testing.T) {
	text, err := os.ReadFile("errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for line := range strings.Lines(string(text)) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `") {
			for _, m := range regexp.MustCompile("`([a-z]+\\.[A-Za-z]+)`").FindAllStringSubmatch(first, -1) {
				entries = append(entries, m[1])
			}
			if strings.Count(line, " | ") != 3 {
				t.Errorf("not four columns: %s", line)
			}
		}
	}
	var errors []string
	for _, pattern := range []string{"../*.go", "../cluster/*.go", "../locks/*.go", "../locks/*/*.go", "../fence/*.go", "../fence/*/*.go", "../transport/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				errors = append(errors, exportedErrors(t, name)...)
			}
		}
	}
	if len(errors) < 40 {
		t.Fatalf("only %d errors found: %q", len(errors), errors)
	}
	slices.Sort(entries)
	slices.Sort(errors)
	for _, e := range slices.Compact(slices.Concat(errors, entries)) {
		switch n := count(entries, e); {
		case !slices.Contains(errors, e):
			t.Errorf("errors.md has %s, which does not exist", e)
		case n != 1:
			t.Errorf("errors.md has %d entries for %s", n, e)
		}
	}
}

func count(list []string, e string) (n int) {
	for _, x := range list {
		if x == e {
			n++
		}
	}
	return n
}

// exportedErrors returns the sentinels and the error types that a file declares, with the
// name of their package.
func exportedErrors(t *testing.T, name string) (errors []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(id *ast.Ident) { errors = append(errors, f.Name.Name+"."+id.Name) }
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					if g.Tok == token.VAR && strings.HasPrefix(id.Name, "Err") {
						add(id)
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
					add(s.Name)
				}
			}
		}
	}
	return errors
}
