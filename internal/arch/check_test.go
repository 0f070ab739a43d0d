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

// file is one Go file of the module. Build tags are ignored: a rule holds on
// every operating system.
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
	// Objects are resolved: a variable called os is not the package.
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

// readTree reads the Go files of the module in root, without the directories that
// the go command passes over and without nested modules.
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

// matches reports whether name matches a pattern: a path, a path and everything
// below ("net/..."), or std.
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

// An arrow is an allowed import: a package of this module, or a third party with
// all major versions and sub-packages.
type arrow struct {
	from, to string
	because  string
}

func (a arrow) String() string { return a.from + " → " + a.to }

// third reports whether the arrow leads out of the module.
func (a arrow) third() bool { return strings.Contains(a.to, ".") }

func (a arrow) allows(f *file, imp string) bool {
	if f.dir() != a.from {
		return false
	}
	if a.third() {
		return matches([]string{a.to + "/..."}, imp)
	}
	return imp == module+"/"+a.to
}

// checkArrows finds imports without an arrow, and arrows without an import: the
// table shows the house as it is, no more and no less. Imports of the standard
// library need no arrow, and test files may import more.
func checkArrows(arrows []arrow, files []*file) (broken []string) {
	used := make(map[arrow]bool)
	for _, f := range files {
		if f.isTest() || matches(free, f.dir()) {
			continue
		}
		for _, imp := range f.imports {
			if matches([]string{std}, imp) {
				continue
			}
			i := slices.IndexFunc(arrows, func(a arrow) bool { return a.allows(f, imp) })
			if i < 0 {
				broken = append(broken, fmt.Sprintf("%s imports %s, and no arrow from %s allows it", f.name, imp, f.dir()))
				continue
			}
			used[arrows[i]] = true
		}
	}
	for _, a := range arrows {
		if !used[a] {
			broken = append(broken, fmt.Sprintf("arrow %v is not used: remove it", a))
		}
		if a.because == "" {
			broken = append(broken, fmt.Sprintf("arrow %v has no reason", a))
		}
	}
	return broken
}

// checkDown finds arrows with a wrong direction: the packages stand on floors in
// the order of the list, and every arrow leads to a later package.
func checkDown(floors []string, arrows []arrow) (broken []string) {
	for _, a := range arrows {
		if a.third() {
			continue
		}
		from, to := slices.Index(floors, a.from), slices.Index(floors, a.to)
		switch {
		case from < 0 || to < 0:
			broken = append(broken, fmt.Sprintf("arrow %v: a package without a floor", a))
		case from >= to:
			broken = append(broken, fmt.Sprintf("arrow %v does not lead down", a))
		}
	}
	return broken
}

type fileKind int

const (
	ownFiles fileKind = iota
	testFiles
)

// importRule forbids imports, of the standard library too.
type importRule struct {
	in      []string
	files   fileKind
	deny    []string
	because string
}

func (r importRule) check(files []*file) (broken []string) {
	for _, f := range files {
		if f.isTest() != (r.files == testFiles) || !matches(r.in, f.dir()) {
			continue
		}
		for _, imp := range f.imports {
			if matches(r.deny, imp) {
				broken = append(broken, fmt.Sprintf("%s must not import %s: %s", f.name, imp, r.because))
			}
		}
	}
	return broken
}

// callRule forbids functions: neither called nor passed on.
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
		// The packages by their names in this file.
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

// roomRule lists the directories of the module's root. Directories with a leading
// dot do not count.
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

// sizeRule bounds product files and functions, in lines.
type sizeRule struct {
	file, function int
	because        string
}

func (r sizeRule) check(files []*file) (broken []string) {
	for _, f := range files {
		if f.isTest() || matches(free, f.dir()) {
			continue
		}
		if n := strings.Count(f.text, "\n"); n > r.file {
			broken = append(broken, fmt.Sprintf("%s has %d lines, over %d: %s", f.name, n, r.file, r.because))
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > r.function {
				broken = append(broken, fmt.Sprintf("%s: %s has %d lines, over %d: %s", f.name, fn.Name.Name, n, r.function, r.because))
			}
		}
	}
	return broken
}

// surfaceRule keeps internal types out of exported functions, methods and struct
// fields: users cannot write the name of an internal type.
type surfaceRule struct {
	in      []string
	because string
}

func (r surfaceRule) check(files []*file) (broken []string) {
	for _, f := range files {
		if f.isTest() || !matches(r.in, f.dir()) {
			continue
		}
		hidden := make(map[string]bool)
		for i, spec := range f.ast.Imports {
			if name := path.Base(f.imports[i]); strings.HasPrefix(f.imports[i], module+"/internal/") {
				if spec.Name != nil {
					name = spec.Name.Name
				}
				hidden[name] = true
			}
		}
		look := func(what string, n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && hidden[x.Name] {
						broken = append(broken, fmt.Sprintf("%s: %s shows %s.%s: %s", f.name, what, x.Name, sel.Sel.Name, r.because))
					}
				}
				return true
			})
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
					look(d.Name.Name, d.Type)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() {
						lookAtType(ts, look)
					}
				}
			}
		}
	}
	return broken
}

// lookAtType looks at the exported fields of a struct, the exported methods of an
// interface, or the whole of another type. An alias is a name for users, and a new
// name hides a basic type.
func lookAtType(ts *ast.TypeSpec, look func(string, ast.Node)) {
	var fields *ast.FieldList
	switch t := ts.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	case *ast.FuncType:
		look(ts.Name.Name, t)
		return
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			if name.IsExported() {
				look(ts.Name.Name+"."+name.Name, field.Type)
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
