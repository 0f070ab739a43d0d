package fence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The test binary starts itself as the child processes that the tests kill.
const (
	childPath = "WARDMOTE_FENCE_TEST_PATH" // path of the mark file
	childDies = "WARDMOTE_FENCE_TEST_DIES" // a token: the child dies inside the write of this token
	childOwns = "WARDMOTE_FENCE_TEST_OWNS" // the child is an owner of the benchmark
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" && os.Getenv(childOwns) != "" {
		if err := serveOwner(path, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv(childPath); path != "" {
		err := child(path, os.Getenv(childDies))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child writes with tokens around the mark until it is killed or its parent is
// gone. Each write appends two lines to the data file, "+token pid" and
// "-token pid". If dies is a token, child kills itself inside the write of dies.
func child(path, dies string) error {
	f, err := OpenFile(path)
	if err != nil {
		return err
	}
	data, err := os.OpenFile(path+".data", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if dies != "" {
		t, err := ParseToken(dies)
		if err != nil {
			return err
		}
		return f.Do(t, func() error {
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			if err := self.Kill(); err != nil {
				return err
			}
			select {}
		})
	}
	for {
		mark, err := f.Current()
		if err != nil {
			return err
		}
		t := max(mark+Token(rand.IntN(4)), 2) - 1 // from one below the mark
		err = f.Do(t, func() error {
			if _, err := fmt.Fprintf(data, "+%d %d\n", t, os.Getpid()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(data, "-%d %d\n", t, os.Getpid())
			return err
		})
		if err != nil && !errors.Is(err, ErrStale) {
			return err
		}
		if _, err := fmt.Println("."); err != nil {
			return err
		}
	}
}

type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func startChild(t *testing.T, path, dies string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childPath+"="+path, childDies+"="+dies)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	p := &process{cmd, bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// checkData returns the highest token of a started write. Tokens must not fall,
// and a write must end before the next write starts, unless its process is dead.
func checkData(t *testing.T, path string, dead map[string]bool) (top Token) {
	t.Helper()
	b, err := os.ReadFile(path + ".data")
	if err != nil {
		t.Fatal(err)
	}
	open := "" // token and pid of the write that has not ended
	for line := range strings.Lines(string(b)) {
		write := strings.TrimSuffix(line[1:], "\n")
		digits, pid, _ := strings.Cut(write, " ")
		tok, err := ParseToken(digits)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if line[0] == '-' {
			if open != write {
				t.Fatalf("write %q ended inside write %q", write, open)
			}
			open = ""
			continue
		}
		if _, by, _ := strings.Cut(open, " "); open != "" && !dead[by] {
			t.Fatalf("write %q began inside write %q", write, open)
		}
		if tok < top {
			t.Fatalf("token %d of process %s wrote after token %d", tok, pid, top)
		}
		top, open = tok, write
	}
	return top
}

// Children that write are killed at random points, one after the other.
func TestKilledProcessesNeverLowerTheMark(t *testing.T) {
	kills := 30
	if testing.Short() {
		kills = 6
	}
	path := filepath.Join(t.TempDir(), "mark")
	guard := fileGuard{openTest(t, path)}
	dead := make(map[string]bool)
	var mark Token
	var running []*process
	for range kills {
		for len(running) < 3 {
			running = append(running, startChild(t, path, ""))
		}
		p := running[0]
		running = running[1:]
		for range 1 + rand.IntN(8) { // so many writes; then the kill comes at any point
			if _, err := p.out.ReadString('\n'); err != nil {
				t.Fatalf("a child ended by itself: %v", err)
			}
		}
		dead[strconv.Itoa(p.cmd.Process.Pid)] = true
		p.kill()

		func() {
			unlock, err := guard.lockMark() // so that no child writes meanwhile
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			if m, top := readRaw(t, path), checkData(t, path, dead); m < top {
				t.Fatalf("the mark is %d, but token %d has written", m, top)
			}
		}()
		m := guard.mustCurrent(t)
		if m < mark {
			t.Fatalf("the mark fell from %d to %d", mark, m)
		}
		mark = m
	}
	for _, p := range running {
		p.kill()
		dead[strconv.Itoa(p.cmd.Process.Pid)] = true
	}
	if m, top := guard.mustCurrent(t), checkData(t, path, dead); m < top || top == 0 {
		t.Errorf("the mark is %d, but token %d has written", m, top)
	} else if err := guard.Do(m-1, noWrite); !errors.Is(err, ErrStale) {
		t.Errorf("token %d below the mark: %v", m-1, err)
	} else if err := guard.Do(m, noWrite); err != nil {
		t.Errorf("token %d at the mark: %v", m, err)
	}
}

// A process that dies inside write has raised the mark, and its lock is free.
func TestDeathInsideTheWriteKeepsTheMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	p := startChild(t, path, "7")
	io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err == nil {
		t.Fatal("the child outlived its own kill")
	}
	f := openTest(t, path)
	if err := f.Do(6, noWrite); !errors.Is(err, ErrStale) {
		t.Errorf("token 6 after 7 was shown: %v", err)
	}
	if err := f.Do(7, noWrite); err != nil {
		t.Errorf("token 7 tries again: %v", err)
	}
}
