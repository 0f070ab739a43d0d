//go:build unix

// Package docs has documents, and the tests of their blocks.
package docs

import (
	"bufio"
	"fmt"
	"go/format"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// block is a fenced block of a document.
type block struct{ language, text string }

func readBlocks(t *testing.T, name string) (blocks []block) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllSubmatch(b, -1) {
		blocks = append(blocks, block{string(m[1]), string(m[2])})
	}
	return blocks
}

// start.md has one program, formatted by gofmt.
func TestStartHasOneProgram(t *testing.T) {
	var programs []string
	for _, b := range readBlocks(t, "start.md") {
		if b.language == "go" {
			programs = append(programs, b.text)
		}
	}
	if len(programs) != 1 {
		t.Fatalf("%d programs in start.md, want 1", len(programs))
	}
	formatted, err := format.Source([]byte(programs[0]))
	if err != nil || string(formatted) != programs[0] {
		t.Errorf("gofmt would change the program of start.md: %v", err)
	}
}

// A newcomer copies the blocks of start.md into a shell: a job runs in one of three
// processes, and goes on in another process after kill -9. The test plays the
// blocks word for word, and adds one line: the module is this checkout, where readers
// fetch a published version.
func TestStartPlays(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("WARDMOTE_FULL=1 plays the document, in real time")
	}
	for _, port := range []string{"7001", "7002", "7003"} {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatalf("a port of the document is in use, so it cannot be played here: %v", err)
		}
		l.Close()
	}
	stalls, began := testrounds.WatchStalls(nil), time.Now()
	defer stalls.Stop()
	s := newSession(t)
	var before, after, owners []run
	var told [][]string
	for _, b := range readBlocks(t, "start.md") {
		switch {
		case b.language == "go":
			if err := os.WriteFile(filepath.Join(s.dir, "main.go"), []byte(b.text), 0o644); err != nil {
				t.Fatal(err)
			}
		case b.language != "sh": // output, for comparison
		case strings.Contains(b.text, "go mod init"):
			s.play(b.text)
			s.play("go mod edit -replace github.com/wardmote/wardmote='" + s.checkout + "'\n")
		case strings.Contains(b.text, "kill -9"):
			before = s.await("a process to have the job", func(r []run) bool { return len(r) > 0 })
			s.play(b.text)
			after = s.await("another process to have the job", func(r []run) bool { return r[len(r)-1].pid != before[0].pid })
			// Not later: when all are asked to end, one may end before another has heard.
			owners = slices.Compact(after)
			told = regexp.MustCompile(`process (\d+) has the job\n`).FindAllStringSubmatch(s.output(), -1)
		default:
			s.play(b.text)
		}
	}
	if after == nil {
		t.Fatal("start.md kills no process")
	}

	// One process wrote at a time: the token rose with each change of the process.
	all := slices.Compact(s.runs())
	for i, r := range all[1:] {
		if r.token <= all[i].token {
			t.Errorf("%v wrote after %v", r, all[i])
		}
	}
	// The job changed hands at the kill alone, and the terminal told of it.
	if len(owners) == 2 && len(told) == 2 && told[0][1] == fmt.Sprint(owners[0].pid) && told[1][1] == fmt.Sprint(owners[1].pid) {
		return
	}
	text := fmt.Sprintf("the job's processes were %v, and the terminal told of %v", owners, told)
	if stood := stalls.Since(began); stood >= testrounds.Void {
		t.Logf("%s; void, since this host stood still for %v", text, stood)
		return
	}
	t.Error(text)
}

// run is a line of runs.txt.
type run struct{ pid, token int }

func (s *session) runs() (runs []run) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "runs.txt"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r run
		if _, err := fmt.Sscanf(line, "%d wrote under token %d\n", &r.pid, &r.token); err != nil {
			s.t.Fatalf("line %q of runs.txt: %v", line, err)
		}
		runs = append(runs, r)
	}
	return runs
}

// session is a shell in an empty folder.
type session struct {
	t             *testing.T
	dir, checkout string
	shell         *exec.Cmd
	in            io.WriteCloser
	status        *os.File // a line after each block
	statuses      *bufio.Scanner
	screen        *os.File // the output of the shell and of all its processes
}

// newSession starts a shell without a network for the go command. The modules are in the cache
// already, because this repository needs the same modules.
func newSession(t *testing.T) *session {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	status, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s := &session{t: t, dir: t.TempDir(), checkout: checkout, screen: screen, status: status, statuses: bufio.NewScanner(status)}
	s.shell = exec.Command("bash")
	s.shell.Dir = s.dir
	s.shell.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=readonly", "GOWORK=off")
	s.shell.Stdout, s.shell.Stderr, s.shell.ExtraFiles = screen, screen, []*os.File{theirs}
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.in, err = s.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The shell, and every process of its group.
		_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL)
		_ = s.shell.Wait()
		status.Close()
		if t.Failed() {
			t.Logf("the terminal:\n%s", s.output())
			logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
			for _, name := range logs {
				b, _ := os.ReadFile(name)
				t.Logf("%s:\n%s", filepath.Base(name), b)
			}
		}
		screen.Close()
	})
	return s
}

// patience is for a busy host. Each step takes seconds.
const patience = 2 * time.Minute

// play gives the shell a block, and waits for the block's end.
func (s *session) play(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, text+"echo $? >&3\n"); err != nil {
		s.t.Fatal(err)
	}
	if err := s.status.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if s.statuses.Scan(); s.statuses.Text() != "0" {
		s.t.Fatalf("status %q of the block:\n%s", s.statuses.Text(), text)
	}
}

// await waits until enough of the job's lines are there.
func (s *session) await(what string, enough func([]run) bool) []run {
	s.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.After(patience); ; {
		if runs := s.runs(); enough(runs) {
			return runs
		}
		select {
		case <-look.C:
		case <-end:
			s.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// output returns the text of the terminal so far.
func (s *session) output() string {
	b, err := os.ReadFile(s.screen.Name())
	if err != nil {
		s.t.Error(err)
	}
	return string(b)
}
