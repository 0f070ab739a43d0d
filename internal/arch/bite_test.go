package arch

import (
	"fmt"
	"strings"
	"testing"
)

// src is a file at name that imports what is given, "alias path" or "path".
func src(name string, imports ...string) *file {
	var b strings.Builder
	b.WriteString("package p\n")
	for _, i := range imports {
		alias, p, ok := strings.Cut(i, " ")
		if !ok {
			alias, p = "", i
		}
		fmt.Fprintf(&b, "import %s %q\n", alias, p)
	}
	return &file{name: name, text: b.String()}
}

// sound is a small house that keeps all rules, with what tests may do beyond.
func sound() []*file {
	return []*file{
		src("internal/machine/apply.go", "slices", "encoding/binary", "hash/crc32"),
		src("internal/machine/apply_test.go", "os", "time", "pgregory.net/rapid"),
		src("fence/file.go", "os", "syscall", "sync"),
		src("fence/fence_test.go", "os/exec", "pgregory.net/rapid"),
		src("internal/replica/replica.go", "context", "errors", "time", module+"/internal/machine"),
		src("transport/tcp.go", "net", module+"/internal/timing", module+"/internal/simnet"),
		src("internal/simnet/faults.go", "time", module+"/internal/timing", module+"/internal/wakeup"),
		src("internal/port/handshake.go", "crypto/tls", module+"/transport", module+"/internal/timing"),
		src("transport/tcp_test.go", "go.uber.org/goleak"),
		src("internal/wire/frame.go", "io", "github.com/vmihailenco/msgpack/v5", module+"/internal/machine"),
		src("locks/client.go", "time", module+"/cluster", module+"/fence", module+"/internal/replica", module+"/internal/machine"),
		src("locks/sleep_linux.go", "golang.org/x/sys/unix"),
		src("locks/client_test.go", module+"/transport", module+"/locks/lockstest", "github.com/anishathalye/porcupine"),
		src("locks/lockstest/cluster.go", "testing", module+"/transport", module+"/cluster", module+"/locks"),
		src("cluster/raft.go", "github.com/hashicorp/raft"),
		src("cluster/gossip.go", "github.com/hashicorp/memberlist"),
		src("cluster/store_bolt.go", "github.com/hashicorp/raft-boltdb/v2"),
		src("cluster/node.go", module+"/transport", module+"/internal/wire", module+"/internal/replica"),
		src("cluster/node_test.go", "github.com/hashicorp/raft", "github.com/hashicorp/memberlist"),
		{name: "cluster/wait.go", text: `package cluster
			import ("os"; "time"; "log")
			type sleeper struct{ Exit func(int) }
			func wait(d time.Duration) { <-time.After(d); log.Println(os.Args) }
			func hide(os sleeper) { os.Exit(1) } // no package: a parameter of that name`},
		{name: "cluster/wait_test.go", text: `package cluster
			import "time"
			func nap() { time.Sleep(1) }`},
		{name: "examples/quickstart/main.go", text: `package main
			import ("os"; "time")
			func main() { time.Sleep(1); os.Exit(1) }`},
	}
}

func TestSoundHousePasses(t *testing.T) {
	broken, err := checkAll(sound())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// Each case damages the sound house in one place; the verdict must name the
// place and nothing else, so that each rule is seen to bite for itself.
func TestEveryRuleBites(t *testing.T) {
	call := func(name, text string) *file { return &file{name: name, text: "package p\n" + text} }
	cases := []struct {
		add  *file
		want []string // parts of the only verdict
	}{
		{src("internal/machine/x.go", "time"), []string{"internal/machine/x.go must not import time:", "no clock"}},
		{src("internal/machine/x.go", "sync"), []string{"import sync:", "no clock"}},
		{src("internal/machine/x.go", "sync/atomic"), []string{"import sync/atomic:"}},
		{src("internal/machine/x.go", "math/rand"), []string{"import math/rand:"}},
		{src("internal/machine/x.go", "math/rand/v2"), []string{"import math/rand/v2:"}},
		{src("internal/machine/x.go", "crypto/rand"), []string{"import crypto/rand:"}},
		{src("internal/machine/x.go", "net"), []string{"import net:"}},
		{src("internal/machine/x.go", "net/netip"), []string{"import net/netip:"}},
		{src("internal/machine/x.go", "os"), []string{"import os:"}},
		{src("internal/machine/x.go", "C"), []string{"import C:"}},
		{src("internal/machine/x_windows.go", "os/exec"), []string{"x_windows.go must not import os/exec:"}},
		{src("internal/machine/x.go", "clock time"), []string{"import time:"}}, // by another name
		{src("internal/machine/x.go", "golang.org/x/sys/unix"), []string{"import golang.org/x/sys/unix:"}},
		{src("internal/machine/x.go", module+"/fence"), []string{"import " + module + "/fence:"}},
		{src("internal/machine/x_test.go", module+"/cluster"), []string{"x_test.go must not", "tested on the table alone"}},

		{src("fence/x.go", "golang.org/x/sys/windows"), []string{"fence/x.go must not", "imports fence alone"}},
		{src("fence/x.go", module+"/cluster"), []string{"fence/x.go must not", "imports fence alone"}},
		{src("fence/x.go", module+"/internal/machine"), []string{"fence/x.go must not", "imports fence alone"}},
		{src("fence/sub/x.go", module+"/internal/machine"), []string{"fence/sub/x.go must not", "imports fence alone"}},
		{src("fence/x_test.go", module+"/cluster"), []string{"fence/x_test.go must not", "whatever hands out"}},

		{src("internal/replica/x.go", "net"), []string{"internal/replica/x.go must not import net:", "the seam"}},
		{src("internal/replica/x.go", module+"/internal/wire"), []string{"the seam"}},

		{src("transport/x.go", "golang.org/x/sys/unix"), []string{"transport/x.go must not", "moves bytes"}},
		{src("transport/x.go", module+"/internal/wire"), []string{"transport/x.go must not", "moves bytes"}},

		{src("internal/simnet/x.go", module+"/transport"), []string{"internal/simnet/x.go must not", "below transport"}},
		{src("internal/port/x.go", module+"/internal/wire"), []string{"internal/port/x.go must not", "admits connections"}},
		{src("internal/wire/x.go", module+"/transport"), []string{"internal/wire/x.go must not", "encodings"}},
		{src("internal/wire/x.go", "github.com/hashicorp/go-msgpack/v2"), []string{"internal/wire/x.go must not", "encodings"}},

		{src("locks/lockstest/x.go", "github.com/hashicorp/go-hclog"), []string{"does not know how it is replicated", "no more than that"}},
		{src("locks/x.go", "github.com/hashicorp/go-hclog"), []string{"does not know how it is replicated", "through the seam"}},
		{src("locks/x.go", module+"/transport"), []string{"locks/x.go must not", "through the seam"}},
		{src("locks/x.go", module+"/internal/wire"), []string{"locks/x.go must not", "through the seam"}},
		{src("locks/x.go", "go.etcd.io/bbolt"), []string{"locks/x.go must not", "through the seam"}},
		{src("locks/lockstest/x.go", "pgregory.net/rapid"), []string{"locks/lockstest/x.go must not", "no more than that"}},

		{src("cluster/x.go", module+"/locks"), []string{"cluster/x.go must not", "arrows point down"}},
		{src("cluster/x.go", module+"/locks/lockstest"), []string{"cluster/x.go must not", "arrows point down"}},

		{src("cluster/x.go", "github.com/hashicorp/raft"), []string{"raft is imported by cluster/raft.go and cluster/x.go", "one file"}},
		{src("cluster/x.go", "github.com/hashicorp/memberlist"), []string{"memberlist is imported by cluster/gossip.go and cluster/x.go"}},
		{src("cluster/x.go", "github.com/hashicorp/raft-boltdb"), []string{"raft-boltdb is imported by cluster/store_bolt.go and cluster/x.go"}},
		{src("examples/x/main.go", "github.com/hashicorp/raft"), []string{"only cluster does", "one file"}},

		{call("cluster/x.go", `import "os"; func f() { os.Exit(1) }`), []string{"cluster/x.go:2 must not use os.Exit:", "not ours to end"}},
		{call("cluster/x.go", `import sys "os"; var f = sys.Exit`), []string{"os.Exit", "not ours to end"}},
		{call("internal/x/x.go", `import "syscall"; func f() { syscall.Exit(1) }`), []string{"syscall.Exit", "not ours to end"}},
		{call("transport/x.go", `import "log"; func f() { log.Fatal(1) }`), []string{"log.Fatal:", "not ours to end"}},
		{call("transport/x.go", `import "log"; func f() { log.Fatalf("") }`), []string{"log.Fatalf:"}},
		{call("transport/x.go", `import "log"; func f() { log.Fatalln() }`), []string{"log.Fatalln:"}},
		{call("transport/x.go", `import "time"; func f() { go func() { time.Sleep(1) }() }`), []string{"time.Sleep:", "nobody can cancel"}},
		{call("locks/lockstest/x.go", `import "time"; func f() { time.Sleep(1) }`), []string{"time.Sleep:", "nobody can cancel"}},
		{call("transport/x.go", `import . "time"; func f() { Sleep(1) }`), []string{"import time by dot", "nobody can cancel"}},
		{call("x.go", `import "time"; func f() { time.Sleep(1) }`), []string{"x.go:2 must not use time.Sleep:"}},
	}
	for _, c := range cases {
		broken, err := checkAll(append(sound(), c.add))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(broken, "\n")
		for _, w := range c.want {
			if !strings.Contains(all, w) {
				t.Errorf("%s with %q: no verdict with %q, but: %v", c.add.name, c.add.text, w, broken)
			}
		}
		for _, b := range broken {
			if !strings.Contains(b, c.add.name) {
				t.Errorf("%s is not to blame for: %s", c.add.name, b)
			}
		}
	}

	// A rule without a case above has not been seen to bite.
	var verdicts strings.Builder
	for _, c := range cases {
		broken, _ := checkAll(append(sound(), c.add))
		fmt.Fprintln(&verdicts, strings.Join(broken, "\n"))
	}
	for _, r := range importRules {
		if r.because == "" || !strings.Contains(verdicts.String(), r.because) {
			t.Errorf("no case shows that this rule bites: %v: %q", r.in, r.because)
		}
	}
	for _, r := range callRules {
		for _, n := range r.names {
			if r.because == "" || !strings.Contains(verdicts.String(), n+": "+r.because) {
				t.Errorf("no case shows that this rule bites: %s: %q", n, r.because)
			}
		}
	}
	for _, r := range singleRules {
		if !strings.Contains(verdicts.String(), r.path+" is imported by ") {
			t.Errorf("no case shows that this rule bites: %s in one file", r.path)
		}
	}
}

// A third party that nobody imports any more should leave go.mod.
func TestUnusedThirdPartyIsNoticed(t *testing.T) {
	for _, r := range singleRules {
		var files []*file
		for _, f := range sound() {
			if !strings.Contains(f.text, `"`+r.path+`"`) && !strings.Contains(f.text, `"`+r.path+`/`) {
				files = append(files, f)
			}
		}
		broken, err := checkAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if len(broken) != 1 || !strings.Contains(broken[0], "nothing imports "+r.path+":") {
			t.Errorf("without %s: %v", r.path, broken)
		}
	}
}

func TestRoomsAreExactlyTheHouses(t *testing.T) {
	house := []string{".ci", ".git", "cluster", "examples", "fence", "internal", "locks", "transport"}
	if broken := rooms.check(append(house, "contrib")); broken != nil {
		t.Errorf("the house itself: %v", broken)
	}
	if broken := rooms.check(append(house, "utils")); len(broken) != 1 || !strings.Contains(broken[0], "directory utils is not of the house") {
		t.Errorf("a new room: %v", broken)
	}
	for i, d := range house[2:] {
		without := append(append([]string{}, house[:i+2]...), house[i+3:]...)
		if broken := rooms.check(without); len(broken) != 1 || !strings.Contains(broken[0], "directory "+d+" is missing") {
			t.Errorf("without %s: %v", d, broken)
		}
	}
}
