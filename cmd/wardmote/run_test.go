//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

func TestRunPassesEverythingThrough(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	script := `cat; echo "$WARDMOTE_KEY $WARDMOTE_TOKEN"; echo complaint >&2; exit 3`
	var last int
	for i := range 2 {
		out, err, code := runCLI(t, "input\n", "run", "-join", w.join(), "passed/through", "--", "sh", "-c", script)
		lines := strings.Split(out, "\n")
		if code != 3 || err != "complaint\n" || len(lines) != 3 || lines[0] != "input" {
			t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
		}
		key, token, _ := strings.Cut(lines[1], " ")
		if n, err := strconv.Atoi(token); err != nil || key != "passed/through" || n <= last {
			t.Errorf("run %d: key and token are %q after token %d", i, lines[1], last)
		} else {
			last = n
		}
	}
	// Without --, and verbose.
	out, err, code := runCLI(t, "", "run", "-verbose", "-shared", "-join", w.join(), "passed/through", "echo", "-n", "x")
	if code != 0 || out != "x" || !strings.Contains(err, "under token") {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
	}
}

func TestExitCodesOfRun(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hold(t, w, "taken")
	other := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(other, []byte("another-secret-of-another-cluster-9876543210\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	join := []string{"run", "-join", w.join()}
	for name, c := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"no way":           {[]string{"run", "k", "--", "true"}, exitUsage, "give -join"},
		"no key":           {join, exitUsage, "no KEY"},
		"no command":       {append(join, "k", "--"), exitUsage, "no COMMAND"},
		"flag behind":      {append(join, "k", "-n", "--", "true"), exitUsage, "flags come before KEY"},
		"unknown flag":     {append(join, "-nope", "k", "--", "true"), exitUsage, "-nope"},
		"two answers":      {append(join, "-n", "-wait", "1s", "k", "--", "true"), exitUsage, "give one of them"},
		"empty key":        {append(join, "", "--", "true"), exitUsage, "key"},
		"long ttl":         {append(join, "-ttl", "1ms", "k", "--", "true"), exitUsage, "TTL"},
		"not found":        {append(join, "k", "--", "/nonexistent/x"), exitNotFound, "no such command"},
		"not in the path":  {append(join, "k", "--", "no-such-program-here"), exitNotFound, "no such command"},
		"not executable":   {append(join, "k", "--", plain), exitNotExecutable, "permission denied"},
		"unreachable":      {[]string{"run", "-timeout", "300ms", "-join", freeAddr(t), "k", "--", "true"}, exitUnavailable, "wardmote status"},
		"bad address":      {[]string{"run", "-join", "nowhere", "k", "--", "true"}, exitConfig, "not host:port"},
		"no such secret":   {append(join, "-secret-file", "/nonexistent/secret", "k", "--", "true"), exitConfig, "WARDMOTE_SECRET_FILE"},
		"another secret":   {append(join, "-timeout", "1s", "-secret-file", other, "k", "--", "true"), exitUnavailable, "wardmote status"},
		"half a pair":      {append(join, "-cert", plain, "k", "--", "true"), exitUsage, "go together"},
		"bad certificate":  {append(join, "-cert", plain, "-key", plain, "-ca", plain, "k", "--", "true"), exitConfig, "-cert"},
		"taken, no wait":   {append(join, "-n", "taken", "--", "echo", "ran"), exitBusy, "is held by sh["},
		"taken, wait":      {append(join, "-wait", "200ms", "taken", "--", "echo", "ran"), exitBusy, "is held by sh["},
		"ended by signal":  {append(join, "sig", "--", "sh", "-c", "kill -KILL $$"), exitSignal + 9, ""},
		"code of its own":  {append(join, "own", "--", "sh", "-c", "exit 71"), 71, ""},
		"all is well":      {append(join, "well", "--", "true"), 0, ""},
		"no such commmand": {[]string{"ran"}, exitUsage, `no command "ran"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err, code := runCLI(t, "", c.args...)
			if code != c.code || out != "" || !strings.Contains(err, c.err) || (err == "") != (c.err == "") {
				t.Errorf("code %d in place of %d, stdout %q, stderr %q", code, c.code, out, err)
			}
			if strings.Count(err, "\n") > 1 {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			// As under nohup: children would ignore the signal too. A signal with a handler
			// has its default in children.
			signal.Notify(make(chan os.Signal, 1), s)
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			script := fmt.Sprintf(`trap 'echo got; exit 9' %d; echo up; while :; do sleep 0.02; done`, s)
			r := begin(t, "", "run", "-join", w.join(), "signalled/"+s.String(), "--", "sh", "-c", script)
			r.awaitOutput("up")
			r.signal(s)
			if code := r.wait(); code != 9 || r.stdout() != "up\ngot\n" {
				t.Errorf("code %d, stdout %q, stderr %q", code, r.stdout(), r.stderr())
			}
		})
	}
}

func TestASignalEndsTheWait(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	holder, _ := hold(t, w, "awaited")
	waiter := begin(t, "", "run", "-verbose", "-join", w.join(), "awaited", "--", "echo", "ran")
	waiter.awaitOutput("waits for")
	waiter.signal(syscall.SIGTERM)
	if code := waiter.wait(); code != exitSignal+15 || waiter.stdout() != "" {
		t.Errorf("code %d, stdout %q, stderr %q", code, waiter.stdout(), waiter.stderr())
	}
	holder.signal(syscall.SIGTERM)
	if code := holder.wait(); code != exitSignal+15 {
		t.Errorf("code %d of the holder, stderr %q", code, holder.stderr())
	}
}

// The group of a command has no process left when the key is free.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	file := filepath.Join(t.TempDir(), "stamps")
	_, err, code := runCLI(t, "", "run", "-join", w.join(), "left", "--", os.Args[0], stampCommand, file, "a", "fork", "leave")
	ended := hostClock()
	if code != 7 { // on a slow host stderr may tell that the release was not answered
		t.Fatalf("code %d, stderr %q", code, err)
	}
	size := len(read(file))
	if last := slices.Max(stamps(t, file, "a")); last > ended {
		t.Errorf("alive %v after the end of run", last-ended)
	}
	time.Sleep(50 * time.Millisecond) // it would have written some 50 lines
	if grown := len(read(file)); grown != size {
		t.Errorf("the file grows from %d to %d after the end of run", size, grown)
	}
}

// A succession is two runs for one key: the second run waits for the first.
type succession struct {
	t             *testing.T
	file          string
	first, second *running
	began         time.Time
}

// succeed starts two runs, whose processes ignore signals and have children that do so
// too. flags are for the first one.
func succeed(t *testing.T, w *town, key string, flags ...string) *succession {
	t.Helper()
	s := &succession{t: t, file: filepath.Join(t.TempDir(), "stamps"), began: time.Now()}
	first := append([]string{"run", "-verbose", "-join", w.join()}, flags...)
	s.first = begin(t, "", append(first, key, "--", os.Args[0], stampCommand, s.file, "a", "ignore", "fork")...)
	await(t, "the first command and its child", func() bool {
		s.first.lives()
		return strings.Contains(read(s.file), "a.child ")
	})
	s.second = begin(t, "", "run", "-verbose", "-join", w.join(), key, "--", os.Args[0], stampCommand, s.file, "b")
	s.second.awaitOutput("waits for")
	return s
}

// check waits for the second run's command, and fails if the first one's lives then.
func (s *succession) check() {
	s.t.Helper()
	await(s.t, "the second command", func() bool { return len(stamps(s.t, s.file, "b")) > 0 })
	last, first := slices.Max(stamps(s.t, s.file, "a")), slices.Min(stamps(s.t, s.file, "b"))
	if last < first {
		return
	}
	if still := hostStalls.Since(s.began); still >= testrounds.Void {
		s.t.Logf("the host stood still for %v: the first command lived %v longer", still, last-first)
		return
	}
	s.t.Errorf("the first command lives %v after the start of the second one; stderr of the first run: %s", last-first, s.first.stderr())
}

// The key is free when the session of the run that was killed has expired.
func TestKillOfRunKillsTheCommand(t *testing.T) {
	t.Parallel()
	s := succeed(t, sharedTown(t), "killed", "-ttl", briefTTL.String())
	s.first.signal(syscall.SIGKILL)
	if code := s.first.wait(); code != -int(syscall.SIGKILL) {
		t.Errorf("run ended before the signal: code %d, stderr %s", code, s.first.stderr())
	}
	s.check()
}

// A stopped run loses its lock. The command has ended before the loss.
func TestStopOfRunKillsTheCommand(t *testing.T) {
	t.Parallel()
	s := succeed(t, sharedTown(t), "stopped", "-ttl", briefTTL.String())
	s.first.signal(syscall.SIGSTOP)
	s.check()
	s.first.signal(syscall.SIGCONT)
	if code := s.first.wait(); code != exitLost || !strings.Contains(s.first.stderr(), "the command was ended") {
		t.Errorf("code %d, stderr %s", code, s.first.stderr())
	}
}

// A stopped command is killed too.
func TestAStoppedCommandIsKilled(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	r := begin(t, "", "run", "-join", w.join(), "still", "--", "sh", "-c", "echo $$; kill -STOP $$; echo woke")
	r.awaitOutput("\n")
	pid, err := strconv.Atoi(strings.TrimSpace(r.stdout()))
	if err != nil {
		t.Fatalf("stdout %q, stderr %q", r.stdout(), r.stderr())
	}
	r.signal(syscall.SIGKILL)
	await(t, "the end of a stopped command", func() bool { return dead(pid) })
	if r.stdout() != fmt.Sprintf("%d\n", pid) {
		t.Errorf("stdout %q", r.stdout())
	}
}

// dead reports whether a process has ended. One that its parent has not waited for has
// ended too: in some containers nobody waits for orphans.
func dead(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat := read(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, ok := strings.Cut(stat, ") ")
	return ok && strings.HasPrefix(state, "Z")
}

// Without a quorum the command gets SIGTERM while the lock still holds, and SIGKILL
// before the trust ends.
func TestWithoutAQuorumTheCommandEnds(t *testing.T) {
	t.Parallel()
	w := newTown(t, briefTTL)
	began := time.Now()
	file := filepath.Join(t.TempDir(), "stamps")
	polite := begin(t, "", "run", "-join", w.join(), "polite", "--", "sh", "-c", `trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.02; done`)
	deaf := begin(t, "", "run", "-join", w.join(), "deaf", "--", os.Args[0], stampCommand, file, "a", "ignore", "fork")
	polite.awaitOutput("up")
	await(t, "the work", func() bool {
		deaf.lives()
		return strings.Contains(read(file), "a.child ")
	})
	polite.lives()
	w.kill(0)
	w.kill(1)
	killed := hostClock()
	for _, r := range []*running{polite, deaf} {
		if code := r.wait(); code != exitLost || !strings.Contains(r.stderr(), "the command was ended") {
			t.Errorf("code %d, stderr %s", code, r.stderr())
		}
	}
	still := hostStalls.Since(began) >= testrounds.Void
	if polite.stdout() != "up\nterm\n" && !still {
		t.Errorf("stdout %q", polite.stdout())
	}
	lived := slices.Max(stamps(t, file, "a")) - killed
	if lived > w.ttl && !still {
		t.Errorf("the command lived %v after the end of the quorum", lived)
	}
	t.Logf("the command lived %v after the end of the quorum", lived)
}
