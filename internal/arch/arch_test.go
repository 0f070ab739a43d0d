package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The arrows of the house. A rule binds a package's own files; its tests may
// import more, unless the rule says otherwise.
var importRules = []importRule{
	{
		in:      []string{"internal/machine"},
		allow:   []string{std},
		deny:    []string{"time/...", "sync/...", "math/rand/...", "crypto/rand", "net/...", "os/..."},
		because: "the table has no clock, goroutine, chance or I/O: its state is a function of the log, the same on every voter",
	},
	{
		in:      []string{"internal/machine"},
		files:   testFiles,
		deny:    []string{module + "/cluster/..."},
		because: "the table's rules are tested on the table alone, or they are not its rules",
	},
	{
		in:      []string{"fence/..."},
		allow:   []string{std},
		because: "a protected service imports fence alone, and must not carry a cluster for it",
	},
	{
		in:      []string{"fence/..."},
		files:   testFiles,
		deny:    []string{module + "/cluster/..."},
		because: "a guard must hold whatever hands out the tokens",
	},
	{
		in:      []string{"internal/replica"},
		allow:   []string{"context", "errors", "time", module + "/internal/machine"},
		because: "the seam is one interface, and has no weight of its own",
	},
	{
		in:      []string{"transport/..."},
		allow:   []string{std, module + "/internal/timing", module + "/internal/simnet"},
		because: "transport moves bytes and knows neither what they mean nor who asked",
	},
	{
		in:      []string{"internal/simnet"},
		allow:   []string{std, module + "/internal/timing", module + "/internal/wakeup"},
		because: "the simulated network stands below transport, which hands it to users",
	},
	{
		in:      []string{"internal/port"},
		allow:   []string{std, module + "/internal/timing", module + "/transport"},
		because: "a port admits connections, and does not know what members say on them",
	},
	{
		in:      []string{"internal/wire"},
		allow:   []string{std, "github.com/vmihailenco/msgpack/...", module + "/internal/machine"},
		because: "encodings stand on the table's types, and nothing stands on a connection",
	},
	{
		in:      []string{"locks/..."},
		deny:    []string{"github.com/hashicorp/..."},
		because: "a client of the table does not know how it is replicated",
	},
	{
		in:     []string{"locks/..."},
		except: []string{"locks/lockstest"},
		allow: []string{std, "golang.org/x/sys/...", module + "/locks/...", module + "/cluster", module + "/fence",
			module + "/internal/replica", module + "/internal/machine"},
		because: "locks reaches the cluster through the seam: never a connection, an encoding or a third party",
	},
	{
		in: []string{"locks/lockstest"},
		allow: []string{std, module + "/locks", module + "/cluster", module + "/transport", module + "/fence",
			module + "/internal/replica", module + "/internal/machine", module + "/internal/simnet"},
		because: "a user's test needs a cluster and a network to break, and no more than that",
	},
	{
		in:      []string{"cluster/..."},
		deny:    []string{module + "/locks/..."},
		because: "arrows point down: a cluster runs without a client, and locks tests bring their own",
	},
}

// Third parties that live behind one file of one package, so that a change of
// theirs is a change of that file.
var singleRules = []singleRule{
	{path: "github.com/hashicorp/raft", in: "cluster"},
	{path: "github.com/hashicorp/raft-boltdb", in: "cluster"},
	{path: "github.com/hashicorp/memberlist", in: "cluster"},
}

// What no code outside examples and tests does.
var callRules = []callRule{
	{
		names:   []string{"os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"},
		except:  []string{"examples/..."},
		because: "a library returns its errors: the process is not ours to end",
	},
	{
		names:   []string{"time.Sleep"},
		except:  []string{"examples/..."},
		because: "nobody can cancel a sleep: wait in a select, with a timer beside what ends the wait",
	},
}

// The rooms of the house. A reader finds his way by them, so a new one is a
// decision.
var rooms = roomRule{
	must: []string{"cluster", "examples", "fence", "internal", "locks", "transport"},
	may: []string{
		"contrib", // adapters that need a third party, each with its own go.mod
		"bin",     // not in git
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
	broken, err := checkAll(files)
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

func checkAll(files []*file) (broken []string, err error) {
	for _, f := range files {
		if err := f.parse(); err != nil {
			return nil, err
		}
	}
	for _, r := range importRules {
		broken = append(broken, r.check(files)...)
	}
	for _, r := range singleRules {
		broken = append(broken, r.check(files)...)
	}
	for _, r := range callRules {
		broken = append(broken, r.check(files)...)
	}
	return broken, nil
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
