// Command matrix plays the suite of package fencetest on every guard, and prints the
// results, by guard and case, as a table in Markdown. In internal/fences:
//
//	WARDMOTE_FENCES=all go run ./matrix
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/fence/fencetest"
)

// suites are the tests that play the suite, by directory.
var suites = []struct{ dir, packages, tests string }{
	{"../..", "./fence/...", "^(TestGuard|TestFile|TestMemory|TestDurable|TestManifest)$"},
	{".", ".", "^(TestDatabases|TestRedis|TestS3)$"},
	{"../../examples/stores", "./...", "^TestManifestInADirectory$"},
}

func main() {
	results := make(map[string]map[string]string) // by guard and case
	var guards []string
	ok := true
	for _, s := range suites {
		cmd := exec.Command("go", "test", "-count=1", "-json", "-run", s.tests, s.packages)
		cmd.Dir = s.dir
		out, err := cmd.Output()
		if len(out) == 0 {
			log.Fatal(err)
		}
		ok = read(bytes.NewReader(out), func(guard, name, result string) {
			if results[guard] == nil {
				results[guard] = make(map[string]string)
				guards = append(guards, guard)
			}
			results[guard][name] = result
		}) && ok
	}
	fmt.Print("| |")
	for i := range fencetest.Cases() {
		fmt.Printf(" %d |", i+1)
	}
	fmt.Print("\n|---|", strings.Repeat("---|", len(fencetest.Cases())), "\n")
	for _, guard := range guards {
		fmt.Printf("| %s |", guard)
		for _, name := range fencetest.Cases() {
			fmt.Printf(" %s |", results[guard][name])
		}
		fmt.Println()
	}
	fmt.Println()
	for i, name := range fencetest.Cases() {
		fmt.Printf("%d. %s\n", i+1, name)
	}
	if !ok {
		os.Exit(1)
	}
}

// read tells the result of each case: "yes", "NO", or "-" if the case was left out.
func read(out io.Reader, tell func(guard, name, result string)) (ok bool) {
	leftOut := make(map[string]bool)
	ok = true
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			log.Fatal(err)
		}
		id := event.Package + event.Test
		if event.Action == "output" && strings.Contains(event.Output, "left out: ") {
			leftOut[id] = true
		}
		result := map[string]string{"pass": "yes", "fail": "NO", "skip": "-"}[event.Action]
		if result == "" {
			continue
		}
		ok = ok && result != "NO"
		i := strings.LastIndex(event.Test, "/")
		if i < 0 {
			continue
		}
		name := strings.ReplaceAll(event.Test[i+1:], "_", " ")
		if !slices.Contains(fencetest.Cases(), name) {
			continue
		}
		if leftOut[id] {
			result = "-"
		}
		guard := event.Package[strings.LastIndex(event.Package, "/")+1:] + ": " +
			strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(event.Test[:i], "Test"), "Databases/"), "_", " ")
		guard = strings.ReplaceAll(guard, "/", ", ")
		tell(strings.TrimPrefix(guard, "fences: "), name, result)
	}
	return ok
}
