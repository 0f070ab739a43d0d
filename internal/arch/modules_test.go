package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// bounds are the versions that a module must have, and the reason. No list of
// vulnerabilities names the first: a tool that reads such lists finds nothing.
type bounds struct {
	module       string
	least, below [3]int // below zero: no upper bound
	because      string
}

var modules = []bounds{
	{"github.com/hashicorp/memberlist", [3]int{0, 7, 0}, [3]int{}, "a peer can end the process by a packet to any earlier version"},
	{"github.com/hashicorp/raft", [3]int{1, 8, 0}, [3]int{}, "the judge in front of raft knows this version's messages"},
	{"github.com/hashicorp/raft-boltdb/v2", [3]int{2, 3, 0}, [3]int{2, 3, 1}, "later versions do not build beside this raft"},
	{"go.etcd.io/bbolt", [3]int{1, 5, 0}, [3]int{}, "internal/raftstore reads this version's pages"},
	{"github.com/vmihailenco/msgpack/v5", [3]int{5, 4, 1}, [3]int{}, "the fuzzed decoder is this one"},
}

// unwanted are modules that nothing may bring in.
var unwanted = map[string]string{
	"github.com/hashicorp/yamux": "a stream that hangs holds up no other stream",
	"go.etcd.io/gofail":          "no failure can be switched on from outside",
}

func TestModulesHaveSoundVersions(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(findRoot(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range checkModules(string(b)) {
		t.Error(broken)
	}
}

// checkModules compares the requirements of a go.mod with the bounds.
func checkModules(mod string) (broken []string) {
	if strings.Contains(mod, "\nreplace ") {
		broken = append(broken, "go.mod replaces a module: users of the library would get another one")
	}
	found := make(map[string]string)
	for line := range strings.Lines(mod) {
		if f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require ")); len(f) >= 2 && strings.HasPrefix(f[1], "v") {
			found[f[0]] = f[1]
		}
	}
	for module, because := range unwanted {
		if version := found[module]; version != "" {
			broken = append(broken, fmt.Sprintf("%s is required at %s: %s", module, version, because))
		}
	}
	for _, b := range modules {
		v, err := parseVersion(found[b.module])
		switch {
		case err != nil:
			broken = append(broken, fmt.Sprintf("%s: %v", b.module, err))
		case less(v, b.least) || b.below != [3]int{} && !less(v, b.below):
			broken = append(broken, fmt.Sprintf("%s is required at %s: %s", b.module, found[b.module], b.because))
		}
	}
	return broken
}

// parseVersion reads v1.2.3. A version before a release is none.
func parseVersion(s string) (v [3]int, err error) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) != 3 {
		return v, fmt.Errorf("no version in %q", s)
	}
	for i, p := range parts {
		if v[i], err = strconv.Atoi(p); err != nil {
			return v, fmt.Errorf("no release: %q", s)
		}
	}
	return v, nil
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func TestAnOldModuleIsFound(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(findRoot(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod := string(b)
	for from, to := range map[string]string{
		"memberlist v0.7.0":     "memberlist v0.6.0",
		"raft-boltdb/v2 v2.3.0": "raft-boltdb/v2 v2.3.1",
		"hashicorp/raft v1.8.0": "hashicorp/raft v1.8.0-rc1",
		"go.etcd.io/bbolt v":    "example.com/bbolt v",
		"go 1.26\n":             "go 1.26\nrequire github.com/hashicorp/yamux v0.1.2\n",
		"\nrequire (":           "\nreplace github.com/hashicorp/memberlist => ../memberlist\nrequire (",
	} {
		if !strings.Contains(mod, from) {
			t.Fatalf("go.mod has no %q: correct this test", from)
		}
		if broken := checkModules(strings.Replace(mod, from, to, 1)); len(broken) != 1 {
			t.Errorf("%q in place of %q: %q", to, from, broken)
		}
	}
}
