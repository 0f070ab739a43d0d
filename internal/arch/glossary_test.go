package arch

import (
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The glossary in ARCHITECTURE.md names every unexported type of a package that
// another file of the package uses: a reader of that file must know the word.
func TestGlossaryNamesTheTypes(t *testing.T) {
	root := findRoot(t)
	files, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, ok := strings.Cut(string(doc), "\n## Glossary\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no glossary")
	}
	// A row is: | package | **type**: meaning; **type**: meaning |
	named := make(map[string]map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| (.*) \\|$").FindAllStringSubmatch(glossary, -1) {
		named[row[1]] = make(map[string]bool)
		for _, name := range regexp.MustCompile(`\*\*(\w+)\*\*`).FindAllStringSubmatch(row[2], -1) {
			named[row[1]][name[1]] = true
		}
	}
	shared, err := sharedTypes(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range slices.Sorted(maps.Keys(shared)) {
		for name := range shared[dir] {
			if !named[dir][name] {
				t.Errorf("the glossary lacks %s of %s, which several files use", name, dir)
			}
			delete(named[dir], name)
		}
	}
	for dir, names := range named {
		for name := range names {
			t.Errorf("the glossary names %s of %s, which no two files share", name, dir)
		}
	}
}

// sharedTypes returns, for each package, the unexported types of one file that
// another file mentions. Files with build tags for one operating system do not
// count as others.
func sharedTypes(files []*file) (map[string]map[string]bool, error) {
	home := make(map[string]map[string]string) // package, type, file
	for _, f := range files {
		if f.isTest() || matches(free, f.dir()) {
			continue
		}
		if err := f.parse(); err != nil {
			return nil, err
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok && !ts.Name.IsExported() {
					if home[f.dir()] == nil {
						home[f.dir()] = make(map[string]string)
					}
					home[f.dir()][ts.Name.Name] = f.name
				}
			}
		}
	}
	shared := make(map[string]map[string]bool)
	for _, f := range files {
		if f.isTest() || matches(free, f.dir()) {
			continue
		}
		for _, id := range f.ast.Unresolved { // names of other files and of the universe
			if from := home[f.dir()][id.Name]; from != "" && from != f.name {
				if shared[f.dir()] == nil {
					shared[f.dir()] = make(map[string]bool)
				}
				shared[f.dir()][id.Name] = true
			}
		}
	}
	return shared, nil
}
