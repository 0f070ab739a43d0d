package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A workshop builds and runs the suites of a tree.
type workshop struct {
	root, dir string // of the tree, of the results
	commit    string
	slice     time.Duration // of simulations and storms; 0: the suite's own
}

func (w *workshop) binary(pkg string, fuzz bool) string {
	name := filepath.Base(pkg)
	if fuzz {
		name += ".fuzz"
	}
	return filepath.Join(w.dir, "binaries", w.commit, filepath.ToSlash(filepath.Dir(pkg)), name+".test")
}

// build builds the test binary of a package, unless it is there: a commit is one tree. A
// tree with changes is built anew.
func (w *workshop) build(ctx context.Context, pkg string, fuzz, dirty bool) error {
	name := w.binary(pkg, fuzz)
	if _, err := os.Stat(name); err == nil && !dirty {
		return nil
	}
	args := []string{"test", "-c", "-vet=off", "-o", name}
	if fuzz {
		args = append(args, "-fuzz", ".")
	}
	_, err := output(ctx, w.root, "go", append(args, "./"+pkg)...)
	return err
}

// command is the program of a job.
func (w *workshop) command(ctx context.Context, s suite, j job) *exec.Cmd {
	pkg := s.pkg
	var args []string
	switch {
	case j.Target != "":
		pkg = j.Package
		// Without its bound, the search for the shortest form of an input takes up to a minute
		// of the time for new ones.
		args = []string{"-test.run", "^" + j.Target + "$", "-test.fuzz", "^" + j.Target + "$", "-test.fuzztime", s.slice.String(), "-test.fuzzminimizetime", "1s",
			"-test.parallel", "1", "-test.fuzzcachedir", filepath.Join(w.dir, "inputs")}
	case s.source:
		cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-vet=off", "-timeout", s.limit.String(), "-v", "-run", s.run, "./" + pkg}, s.args...)...)
		cmd.Dir = w.root
		return cmd
	default:
		args = []string{"-test.run", s.run, "-test.timeout", s.limit.String(), "-test.v"}
	}
	cmd := exec.CommandContext(ctx, w.binary(pkg, j.Target != ""), args...)
	cmd.Dir = filepath.Join(w.root, filepath.FromSlash(pkg))
	return cmd
}

// grace is how long an ended process has to go.
const grace = 5 * time.Second

// run runs a job to its end, and returns its line. After an error the job has not happened:
// ctx has ended, or the process could not start.
func (w *workshop) run(ctx context.Context, id string, j job) (run, error) {
	s, _ := suiteOf(j.Suite)
	if s.length != "" && w.slice > 0 {
		s.slice = w.slice
	}
	bounded, cancel := context.WithTimeout(ctx, s.limit+time.Minute) // after the test's own limit
	defer cancel()
	results := filepath.Join(w.dir, "under-way", id+".jsonl")
	if err := os.MkdirAll(filepath.Dir(results), 0o755); err != nil {
		return run{}, err
	}
	defer os.Remove(results)
	cmd := w.command(bounded, s, j)
	cmd.Env = append(os.Environ(), s.environment(j, results)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	cmd.Cancel = func() error { return endGroup(cmd, false) }
	cmd.WaitDelay = grace
	r := run{ID: id, Commit: w.commit, job: j, Began: time.Now().UTC().Truncate(time.Second)}
	began := time.Now()
	err := cmd.Run()
	if cmd.Process != nil {
		_ = endGroup(cmd, true) // children that are left
	}
	if ctx.Err() != nil {
		return run{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && bounded.Err() == nil {
		return run{}, fmt.Errorf("%s: %w", j.Suite, err)
	}
	r.Seconds = time.Since(began).Seconds()
	r.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.Failed, r.Late = err != nil, bounded.Err() != nil
	if j.Target != "" && r.Failed && !r.Late && stopped(out.Bytes()) {
		r.Failed = false
	}
	lines, _ := os.ReadFile(results) // a suite may have nothing to say
	for line := range bytes.Lines(lines) {
		if json.Valid(line) {
			r.Results = append(r.Results, bytes.TrimSpace(line))
		}
	}
	if !r.Failed {
		return r, nil
	}
	r.Output = id
	kept := filepath.Join(w.dir, "failures", id)
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return run{}, err
	}
	head := fmt.Sprintf("commit %s\nreplay %s\n\n", w.commit, s.replay(j))
	return r, errors.Join(
		os.WriteFile(filepath.Join(kept, "output.txt"), append([]byte(head), out.Bytes()...), 0o644),
		os.WriteFile(filepath.Join(kept, "results.jsonl"), lines, 0o644))
}

// stopped reports a fuzz run that the testing package calls a failure because its time was
// up in the middle of an input. Then there is no input to show.
func stopped(out []byte) bool {
	return bytes.Contains(out, []byte("context deadline exceeded")) && !bytes.Contains(out, []byte("Failing input"))
}

// output returns what a program prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w\n%s", name, args, err, stderr.Bytes())
	}
	return string(out), nil
}
