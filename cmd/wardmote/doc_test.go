//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the usage into docs/command.md")

// docs/command.md ends with the usage of the program and of all commands, as wardmote help
// prints them.
func TestTheDocumentHasTheUsage(t *testing.T) {
	const (
		file    = "../../docs/command.md"
		heading = "## All commands\n"
	)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, got, ok := strings.Cut(string(b), heading)
	if !ok {
		t.Fatalf("%s lacks %q", file, heading)
	}
	var want strings.Builder
	fmt.Fprintf(&want, "\n```\n%s```\n", usage())
	for _, c := range commands() {
		fmt.Fprintf(&want, "\n### %s\n\n```\n%s```\n", c.name, c.usage())
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(before+heading+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want.String() {
		t.Errorf("%s differs from wardmote help: go test ./cmd/wardmote -run TheDocument -rewrite, and read the difference", file)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	if out, err, code := runCLI(t, "", "help"); code != 0 || err != "" || out != usage() {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
	}
	for _, c := range commands() {
		for _, args := range [][]string{{"help", c.name}, {c.name, "-h"}} {
			if out, err, code := runCLI(t, "", args...); code != 0 || err != "" || out != c.usage() {
				t.Errorf("%q: code %d, stdout %q, stderr %q", args, code, out, err)
			}
		}
	}
	if out, err, code := runCLI(t, "", "version"); code != 0 || err != "" || !strings.HasPrefix(out, "wardmote ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
	}
}
