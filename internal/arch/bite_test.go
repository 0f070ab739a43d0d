package arch

import (
	"fmt"
	"strings"
	"testing"
)

// source is a file at name that imports the given paths, each "alias path" or
// "path".
func source(name string, imports ...string) *file {
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

// Arrows of a small house, on the floors of the real house.
var soundArrows = []arrow{
	{"cluster", "transport", "a reason"},
	{"cluster", "internal/wire", "a reason"},
	{"internal/wire", "internal/machine", "a reason"},
	{"internal/wire", "github.com/vmihailenco/msgpack", "a reason"},
}

// sound is a small house without a broken rule. Its tests import more.
func sound() []*file {
	return []*file{
		source("internal/machine/apply.go", "slices", "encoding/binary"),
		source("internal/machine/apply_test.go", "os", "time", "pgregory.net/rapid"),
		source("fence/file.go", "os", "syscall", "sync"),
		source("fence/fence_test.go", "os/exec", "pgregory.net/rapid"),
		source("internal/wire/frame.go", "io", "github.com/vmihailenco/msgpack/v5", module+"/internal/machine"),
		source("cluster/node.go", module+"/transport", module+"/internal/wire"),
		source("cluster/node_test.go", "github.com/hashicorp/raft"),
		source("internal/term/term_test.go", module+"/internal/stream"),
		{name: "cluster/wait.go", text: `package cluster
			import ("os"; "time"; "log")
			type sleeper struct{ Exit func(int) }
			func wait(d time.Duration) { <-time.After(d); log.Println(os.Args) }
			func hide(os sleeper) { os.Exit(1) } // no package: a parameter of that name`},
		{name: "cluster/wait_test.go", text: `package cluster
			import "time"
			func nap() { time.Sleep(1) }`},
		{name: "cluster/hidden.go", text: `package cluster
			import "` + module + `/internal/wire"
			type inner struct{ F wire.Frame }
			func (i inner) Frame() wire.Frame { return i.F }
			type Outer struct{ f wire.Frame }
			func (o Outer) frame() wire.Frame { return o.f }`},
		{name: "examples/quickstart/main.go", text: `package main
			import ("os"; "time"; "` + module + `/internal/wire")
			func main() { time.Sleep(1); os.Exit(1); wire.Marshal(nil) }`},
	}
}

func TestSoundHousePasses(t *testing.T) {
	broken, err := checkAll(soundArrows, sound())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// Each case damages the sound house in one place; the only verdict must name
// this place: each rule bites by itself.
func TestEveryRuleBites(t *testing.T) {
	code := func(name, text string) *file { return &file{name: name, text: "package p\n" + text} }
	wire := `import "` + module + `/internal/wire"; `
	cases := []struct {
		add  *file
		want string // part of the only verdict
	}{
		{source("internal/wire/x.go", module+"/transport"), "internal/wire/x.go imports " + module + "/transport, and no arrow"},
		{source("internal/wire/x.go", "github.com/hashicorp/go-msgpack/v2"), "no arrow from internal/wire"},
		{source("internal/machine/x.go", "golang.org/x/sys/unix"), "no arrow from internal/machine"},
		{source("fence/x.go", module+"/internal/machine"), "no arrow from fence"},
		{source("fence/sub/x.go", module+"/internal/machine"), "no arrow from fence/sub"},

		{source("internal/machine/x.go", "time"), "must not import time: the table has no clock"},
		{source("internal/machine/x.go", "sync/atomic"), "must not import sync/atomic: the table has no clock"},
		{source("internal/machine/x.go", "math/rand/v2"), "must not import math/rand/v2: the table has no clock"},
		{source("internal/machine/x.go", "crypto/rand"), "must not import crypto/rand: the table has no clock"},
		{source("internal/machine/x.go", "net/netip"), "must not import net/netip: the table has no clock"},
		{source("internal/machine/x_windows.go", "os/exec"), "x_windows.go must not import os/exec: the table has no clock"},
		{source("internal/machine/x.go", "clock time"), "must not import time: the table has no clock"}, // by another name
		{source("internal/machine/x_test.go", module+"/cluster"), "tested on the table alone"},
		{source("fence/x_test.go", module+"/cluster"), "tokens from any source"},
		{source("internal/term/x_test.go", module+"/cluster"), "not through a whole node"},
		{source("locks/lockshttp/x.go", "_ net/http/pprof"), "must not import net/http/pprof: an import opens no endpoint"},
		{source("internal/x/x.go", "expvar"), "must not import expvar: an import opens no endpoint"},

		{code("cluster/x.go", `import "os"; func f() { os.Exit(1) }`), "cluster/x.go:2 must not use os.Exit: a library returns its errors"},
		{code("cluster/x.go", `import sys "os"; var f = sys.Exit`), "os.Exit: a library returns its errors"},
		{code("internal/x/x.go", `import "syscall"; func f() { syscall.Exit(1) }`), "syscall.Exit: a library returns its errors"},
		{code("transport/x.go", `import "log"; func f() { log.Fatal(1) }`), "log.Fatal: a library returns its errors"},
		{code("transport/x.go", `import "log"; func f() { log.Fatalf("") }`), "log.Fatalf: a library returns its errors"},
		{code("transport/x.go", `import "log"; func f() { log.Fatalln() }`), "log.Fatalln: a library returns its errors"},
		{code("transport/x.go", `import "time"; func f() { go func() { time.Sleep(1) }() }`), "time.Sleep: nobody can cancel"},
		{code("transport/x.go", `import . "time"; func f() { Sleep(1) }`), "import time by dot"},
		{code("x.go", `import "time"; func f() { time.Sleep(1) }`), "x.go:2 must not use time.Sleep: nobody can cancel"},

		{code("cluster/x.go", strings.Repeat("\n", 450)), "cluster/x.go has 451 lines, over 450: a file holds one idea"},
		{code("cluster/x.go", "func f() {"+strings.Repeat("\n", 80)+"}"), "cluster/x.go: f has 81 lines, over 80: a file holds one idea"},

		{code("cluster/x.go", wire+`func F() wire.Frame { return wire.Frame{} }`), "F shows wire.Frame: users cannot write"},
		{code("cluster/x.go", wire+`type T struct{}; func (*T) M(f []wire.Frame) {}`), "M shows wire.Frame: users cannot write"},
		{code("cluster/x.go", wire+`type T struct{ F *wire.Frame }`), "T.F shows wire.Frame: users cannot write"},
		{code("cluster/x.go", wire+`type I interface{ M() wire.Frame }`), "I.M shows wire.Frame: users cannot write"},
	}
	var verdicts strings.Builder
	for _, c := range cases {
		broken, err := checkAll(soundArrows, append(sound(), c.add))
		if err != nil {
			t.Fatal(err)
		}
		if len(broken) != 1 || !strings.Contains(broken[0], c.want) || !strings.Contains(broken[0], c.add.name) {
			t.Errorf("%s with %q: want one verdict with %q, got %q", c.add.name, c.add.text, c.want, broken)
		}
		fmt.Fprintln(&verdicts, strings.Join(broken, "\n"))
	}
	// A rule without a case above has not been seen to bite.
	for _, r := range importRules {
		if !strings.Contains(verdicts.String(), r.because) {
			t.Errorf("no case shows that this rule bites: %v: %q", r.in, r.because)
		}
	}
	for _, r := range callRules {
		for _, n := range r.names {
			if !strings.Contains(verdicts.String(), n+": "+r.because) {
				t.Errorf("no case shows that this rule bites: %s: %q", n, r.because)
			}
		}
	}
}

// Arrows without use, without a reason or with the wrong direction are no part of
// the house.
func TestArrowsAreKeptInOrder(t *testing.T) {
	for _, c := range []struct {
		add  arrow
		want string
	}{
		{arrow{"cluster", "internal/machine", "a reason"}, "arrow cluster → internal/machine is not used"},
		{arrow{"internal/wire", "cluster", "a reason"}, "arrow internal/wire → cluster does not lead down"},
		{arrow{"cluster", "internal/cellar", "a reason"}, "a package without a floor"},
		{arrow{"cluster", "go.etcd.io/bbolt", ""}, "arrow cluster → go.etcd.io/bbolt has no reason"},
	} {
		broken, err := checkAll(append(soundArrows[:len(soundArrows):len(soundArrows)], c.add), sound())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(broken, "\n"), c.want) {
			t.Errorf("%v: no verdict with %q, but %q", c.add, c.want, broken)
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
