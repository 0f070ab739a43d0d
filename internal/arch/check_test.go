package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	module = "github.com/wardmote/wardmote"
	std    = "std" // in a pattern: any package of the standard library
)

// file is one Go file of the module, whatever its build tags: a rule holds on
// every system.
type file struct {
	name string // slash-separated, from the module's root
	text string

	imports []string
	ast     *ast.File
	fset    *token.FileSet
}

func (f *file) dir() string  { return path.Dir(f.name) }
func (f *file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f *file) parse() (err error) {
	f.fset = token.NewFileSet()
	// Objects are resolved so that a variable called os is not the package.
	f.ast, err = parser.ParseFile(f.fset, f.name, f.text, 0)
	if err != nil {
		return err
	}
	f.imports = nil
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, p)
	}
	return nil
}

// readTree reads the Go files of the module in root. Directories that the go
// command passes over, and modules within, are no part of it.
func readTree(root string) (files []*file, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == root {
				return nil
			}
			if n := d.Name(); n == "testdata" || n == "vendor" || strings.HasPrefix(n, ".") || strings.HasPrefix(n, "_") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files = append(files, &file{name: filepath.ToSlash(rel), text: string(b)})
		return nil
	})
	return files, err
}

func topDirs(root string) (dirs []string, err error) {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	return dirs, err
}

// matches reports whether name is one of the patterns: a path, a path and all
// below it ("net/..."), or std.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == std {
			// As the go command has it: a host name has a dot. "C" is cgo, not std.
			first, _, _ := strings.Cut(name, "/")
			return !strings.Contains(first, ".") && name != "C"
		}
		if base, ok := strings.CutSuffix(p, "/..."); ok {
			return name == base || strings.HasPrefix(name, base+"/")
		}
		return name == p
	})
}

type fileKind int

const (
	ownFiles fileKind = iota
	testFiles
)

// importRule says what packages may import: only what allow matches, if it is
// set, and nothing that deny matches.
type importRule struct {
	in, except  []string
	files       fileKind
	allow, deny []string
	because     string
}

func (r importRule) check(files []*file) (broken []string) {
	for _, f := range files {
		if f.isTest() != (r.files == testFiles) || !matches(r.in, f.dir()) || matches(r.except, f.dir()) {
			continue
		}
		for _, imp := range f.imports {
			if r.allow != nil && !matches(r.allow, imp) || matches(r.deny, imp) {
				broken = append(broken, fmt.Sprintf("%s must not import %s: %s", f.name, imp, r.because))
			}
		}
	}
	return broken
}

// singleRule says that path, at any major version and with its sub-packages, is
// imported by exactly one file, in package in.
type singleRule struct{ path, in string }

func (r singleRule) check(files []*file) (broken []string) {
	var by []string
	for _, f := range files {
		if f.isTest() || !slices.ContainsFunc(f.imports, func(i string) bool { return matches([]string{r.path + "/..."}, i) }) {
			continue
		}
		by = append(by, f.name)
		if f.dir() != r.in {
			broken = append(broken, fmt.Sprintf("%s must not import %s: only %s does, so that nothing of its own reaches a user",
				f.name, r.path, r.in))
		}
	}
	switch {
	case len(by) == 0:
		broken = append(broken, fmt.Sprintf("nothing imports %s: every user of the module would carry it for nothing", r.path))
	case len(by) > 1:
		broken = append(broken, fmt.Sprintf("%s is imported by %s: it lives behind one file, so that a change of its is a change of that file",
			r.path, strings.Join(by, " and ")))
	}
	return broken
}

// callRule says which functions are not mentioned, called or not.
type callRule struct {
	names   []string // package path, dot, function
	except  []string
	because string
}

func (r callRule) check(files []*file) (broken []string) {
	for _, f := range files {
		if f.isTest() || matches(r.except, f.dir()) {
			continue
		}
		// How this file calls the packages.
		local := make(map[string]string)
		for i, spec := range f.ast.Imports {
			imp := f.imports[i]
			name := path.Base(imp)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			if name == "." && slices.ContainsFunc(r.names, func(n string) bool { return strings.HasPrefix(n, imp+".") }) {
				broken = append(broken, fmt.Sprintf("%s must not import %s by dot: its calls cannot be told. %s", f.name, imp, r.because))
			}
			local[name] = imp
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a variable that hides the package
				return true
			}
			if name := local[x.Name] + "." + sel.Sel.Name; slices.Contains(r.names, name) {
				broken = append(broken, fmt.Sprintf("%s:%d must not use %s: %s", f.name, f.fset.Position(sel.Pos()).Line, name, r.because))
			}
			return true
		})
	}
	return broken
}

// roomRule says which directories the module's root has, apart from those whose
// name begins with a dot.
type roomRule struct {
	must, may []string
	because   string
}

func (r roomRule) check(dirs []string) (broken []string) {
	for _, d := range dirs {
		if !strings.HasPrefix(d, ".") && !slices.Contains(r.must, d) && !slices.Contains(r.may, d) {
			broken = append(broken, fmt.Sprintf("directory %s is not of the house: %s", d, r.because))
		}
	}
	for _, d := range r.must {
		if !slices.Contains(dirs, d) {
			broken = append(broken, fmt.Sprintf("directory %s is missing: %s", d, r.because))
		}
	}
	return broken
}
