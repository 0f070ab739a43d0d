package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Packages without arrows of their own: programs for readers, which use the library as any
// program does, and the programs that build releases and run the suites.
var free = []string{"cmd/...", "examples/...", "internal/release", "internal/torture"}

// library is the code that a user's program links.
var library = []string{".", "cluster/...", "fence/...", "internal/...", "locks/...", "transport/..."}

// Forbidden imports, of the standard library too.
var importRules = []importRule{
	{
		in:      []string{"internal/machine"},
		deny:    []string{"time/...", "sync/...", "math/rand/...", "crypto/rand", "net/...", "os/...", "C"},
		because: "the table has no clock, goroutine, chance or I/O: its state is a function of the log, the same on every voter",
	},
	{
		in:      []string{"internal/machine"},
		files:   testFiles,
		deny:    []string{module + "/cluster/...", module + "/internal/term/..."},
		because: "the table's rules are tested on the table alone, or they are not its rules",
	},
	{
		in:      []string{"fence/..."},
		files:   testFiles,
		deny:    []string{module + "/cluster/...", module + "/locks/...", module + "/internal/..."},
		because: "a guard must hold for tokens from any source",
	},
	{
		in:      []string{"internal/term/...", "internal/voters", "internal/founding", "internal/link", "internal/stream"},
		files:   testFiles,
		deny:    []string{module + "/cluster/...", "github.com/hashicorp/..."},
		because: "a room is tested through the interface that it needs, not through a whole node",
	},
	{
		in:      library,
		deny:    []string{"net/http/pprof", "expvar"},
		because: "an import opens no endpoint for debugging in the user's program",
	},
}

// Functions that library code does not use.
var callRules = []callRule{
	{
		names:   []string{"os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"},
		except:  free,
		because: "a library returns its errors: the process is not ours to end",
	},
	{
		names:   []string{"time.Sleep"},
		except:  free,
		because: "nobody can cancel a sleep: wait in a select, with a timer beside the event that ends the wait",
	},
}

var sizes = sizeRule{
	file:     450,
	function: 80,
	because:  "a file holds one idea, and a function fits a page",
}

var surface = surfaceRule{
	in:      []string{".", "cluster", "locks", "locks/lockshttp", "locks/lockstest", "fence", "transport"},
	because: "users cannot write the name of an internal type",
}

// The rooms of the house. Readers find their way by the rooms, so a new room is a
// decision.
var rooms = roomRule{
	must: []string{"cluster", "examples", "fence", "internal", "locks", "transport"},
	may: []string{
		"cmd",     // the command, for operators
		"contrib", // adapters that need a third party, each with its own go.mod
		"deploy",  // manifests and their tests, with a go.mod of their own
		"docs",
		"bin", "dist", "torture-results", // not in git
	},
	because: "the house has these rooms and no others; ARCHITECTURE.md says what each is for",
}

func TestHouseKeepsItsRules(t *testing.T) {
	root := findRoot(t)
	files, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found under %s", len(files), root)
	}
	broken, err := checkAll(arrows, files)
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := topDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	broken = append(broken, rooms.check(dirs)...)
	for _, b := range broken {
		t.Error(b)
	}
}

func checkAll(arrows []arrow, files []*file) (broken []string, err error) {
	for _, f := range files {
		if err := f.parse(); err != nil {
			return nil, err
		}
	}
	broken = append(checkArrows(arrows, files), checkDown(floors, arrows)...)
	for _, r := range importRules {
		broken = append(broken, r.check(files)...)
	}
	for _, r := range callRules {
		broken = append(broken, r.check(files)...)
	}
	broken = append(broken, sizes.check(files)...)
	return append(broken, surface.check(files)...), nil
}

func findRoot(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module "+module+"\n") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatalf("no go.mod of %s above the test", module)
		}
		dir = up
	}
}
