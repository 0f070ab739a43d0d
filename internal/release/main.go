// Release builds the command wardmote for every system that we promise, into archives that
// anyone can build again byte by byte from the same commit with the same Go:
//
//	go run ./internal/release -o dist
//
// Each archive has the program, LICENSE, NOTICE, and the licences of the modules that are
// compiled in. SHA256SUMS has the sums of all archives. The version is that of the tag
// which git gives the commit; changes that are not committed are refused.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A target is a system that a program is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "-" + t.arch }

// program returns the file name of the program.
func (t target) program() string {
	if t.os == "windows" {
		return "wardmote.exe"
	}
	return "wardmote"
}

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

func main() {
	out := flag.String("o", "dist", "the `directory` for the archives; it is made, and must be empty")
	flag.Parse()
	if err := run(".", *out, targets); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run builds the targets from the checkout in root.
func run(root, out string, targets []target) error {
	version, err := describe(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if old, err := os.ReadDir(out); err != nil || len(old) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty", out))
	}
	texts, err := documents(root)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, t := range targets {
		binary, err := build(root, t)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("wardmote-%s-%s.tar.gz", version, t)
		files := append([]file{{t.program(), 0o755, binary}}, texts...)
		packed, err := pack("wardmote-"+version, files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), packed, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum(packed), name)
		fmt.Println(name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// describe returns the version of the checkout: its tag, or its commit while there is no
// tag.
func describe(root string) (string, error) {
	changes, err := output(root, nil, "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if len(changes) > 0 {
		return "", fmt.Errorf("the checkout has changes that are not committed:\n%s", changes)
	}
	version, err := output(root, nil, "git", "describe", "--tags", "--always", "--match", "v*")
	return strings.TrimSpace(string(version)), err
}

// build returns the program for a target. Nothing of this host is in it: no path, no time
// and no C compiler.
func build(root string, t target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "wardmote-release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, t.program())
	env := []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off"}
	if _, err := output(root, env, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./cmd/wardmote"); err != nil {
		return nil, err
	}
	return os.ReadFile(to)
}

// output runs a command in a directory and returns its standard output.
func output(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
