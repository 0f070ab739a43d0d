package arch

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// maxCompiled is the most modules of others that a program with every package of this
// module compiles in. Each is code that a user has to trust, update and explain: an
// adapter to a third party is a module of its own in contrib.
const maxCompiled = 25

func TestFewModulesAreCompiledIn(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./...")
	list.Dir = findRoot(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	if err := checkCompiled(string(out)); err != nil {
		t.Error(err)
	}
}

// checkCompiled checks a list of modules with a line for each package, empty for a package
// of the standard library or of this module.
func checkCompiled(list string) error {
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(list))))
	switch {
	case !slices.Contains(modules, "github.com/hashicorp/raft"):
		return fmt.Errorf("no raft among the modules compiled in, so the list is wrong: %q", modules)
	case len(modules) > maxCompiled:
		return fmt.Errorf("%d modules of others are compiled in, more than %d: %s", len(modules), maxCompiled, strings.Join(modules, " "))
	}
	return nil
}

func TestOneModuleTooManyIsFound(t *testing.T) {
	list := "\ngithub.com/hashicorp/raft\n\ngithub.com/hashicorp/raft\n"
	for i := range maxCompiled - 1 {
		list += fmt.Sprintf("example.com/%d\n", i)
	}
	if err := checkCompiled(list); err != nil {
		t.Error(err)
	}
	if checkCompiled(list+"example.com/more\n") == nil {
		t.Errorf("%d modules pass", maxCompiled+1)
	}
	if checkCompiled("") == nil {
		t.Error("an empty list passes")
	}
}
