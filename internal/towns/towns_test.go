package towns

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// roleEnv makes the test binary a child that obeys its input, or a test that is killed.
const roleEnv = "WARDMOTE_TEST_TOWNS"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "child":
		fmt.Println("pid", os.Getpid())
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println("heard", lines.Text())
			fmt.Fprintln(os.Stderr, "logged", lines.Text())
		}
	case "host": // sends "address text" from its input, and prints what it receives
		conn, err := net.ListenPacket("udp", "0.0.0.0:7000")
		if err != nil {
			panic(err)
		}
		fmt.Println("listens")
		go func() {
			for b := make([]byte, 100); ; {
				n, _, err := conn.ReadFrom(b)
				if err != nil {
					return
				}
				fmt.Println(string(b[:n]))
			}
		}()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			to, text, _ := strings.Cut(lines.Text(), " ")
			if addr, err := net.ResolveUDPAddr("udp", to+":7000"); err == nil {
				_, _ = conn.WriteTo([]byte(text), addr)
			}
		}
		_ = conn.Close()
	case "parent": // with a stopped child, until it is killed
		lines := make(chan string, 1)
		c, err := NewParent().Start(Program{Env: []string{roleEnv + "=child"}, Line: func(b []byte) { lines <- string(b) }})
		if err != nil {
			panic(err)
		}
		line := <-lines
		if err := c.Pause(); err != nil {
			panic(err)
		}
		if _, err := AtEnd("touch " + os.Getenv(roleEnv+"_FILE")); err != nil {
			panic(err)
		}
		fmt.Print(line)
		select {}
	}
}

func TestAProcessObeysAndEndsWithItsInput(t *testing.T) {
	p := NewParent()
	defer p.Close()
	lines := make(chan string, 10)
	var log strings.Builder
	c, err := p.Start(Program{Env: []string{roleEnv + "=child"}, Line: func(b []byte) { lines <- strings.TrimSpace(string(b)) }, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := <-lines, fmt.Sprint("pid ", c.Pid()); got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	if err := c.Send([]byte("one")); err != nil {
		t.Error(err)
	}
	if got := <-lines; got != "heard one" {
		t.Errorf("answered %q", got)
	}
	if c.Ended() {
		t.Error("ended before its input")
	}
	c.EndInput()
	<-c.Gone()
	if c.Err() != nil || c.ExitCode() != 0 || !c.Ended() {
		t.Errorf("the end: %v, %d", c.Err(), c.ExitCode())
	}
	if c.Log() != "logged one\n" || log.String() != c.Log() {
		t.Errorf("logged %q and %q", c.Log(), log.String())
	}
}

func TestCloseEndsAStoppedProcess(t *testing.T) {
	p := NewParent()
	c, err := p.Start(Program{Env: []string{roleEnv + "=child"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(); err != nil {
		t.Log("no way to pause here: ", err)
	}
	p.Close()
	if !c.Ended() || c.ExitCode() == 0 {
		t.Error("the process runs, or ended by itself")
	}
}

func TestAProgramThatIsMissingIsAnError(t *testing.T) {
	p := NewParent()
	defer p.Close()
	if _, err := p.Start(Program{Args: []string{"/no/such/program"}}); err == nil {
		t.Error("started")
	}
}

// A killed test leaves no process, not even a stopped one, and its script runs.
func TestAKilledTestLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel of Linux alone does that")
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), roleEnv+"=parent", roleEnv+"_FILE="+file)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child := "/proc/" + strings.Fields(line)[1]
	if _, err := os.Stat(child); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone := func() bool {
		text, err := os.ReadFile(child + "/stat")
		_, ran := os.Stat(file)
		return (err != nil || strings.Contains(string(text), ") Z ")) && ran == nil
	}
	for began := time.Now(); !gone(); time.Sleep(5 * time.Millisecond) { // another process's end is no event here
		if time.Since(began) > 20*time.Second {
			t.Fatal("the child lives, or the script did not run")
		}
	}
}

// Each direction is cut and healed by itself, and healed twice if it was cut twice. The
// receiver hears datagrams, which need one direction only.
func TestWaysAreCutAndHealed(t *testing.T) {
	w, err := NewNet(3)
	if err != nil {
		t.Skip("no network namespaces: ", err)
	}
	defer w.Close()
	p := NewParent()
	defer p.Close()
	heard := make(chan string, 1000)
	hosts := make([]*Process, 2)
	for i := range hosts {
		hosts[i], err = p.Start(Program{
			Env: []string{roleEnv + "=host"}, Wrap: w.Wrap(i), Line: func(b []byte) { heard <- strings.TrimSpace(string(b)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		<-heard // it listens
	}
	n := 0
	// passes sends until something is heard, or ten times.
	passes := func(from, to int) bool {
		n++
		text := fmt.Sprint("message ", n)
		for range 10 {
			if err := hosts[from].Send([]byte(w.Host(to) + " " + text)); err != nil {
				t.Fatal(err)
			}
			limit := time.After(100 * time.Millisecond)
			for waiting := true; waiting; {
				select {
				case got := <-heard:
					if got == text {
						return true
					}
				case <-limit:
					waiting = false
				}
			}
		}
		return false
	}
	both := func(when string, one, other bool) {
		t.Helper()
		if passes(0, 1) != one || passes(1, 0) != other {
			t.Errorf("%s: the ways are not %t and %t", when, one, other)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	both("at first", true, true)
	must(w.Cut(0, 1))
	must(w.Cut(0, 1))
	both("cut twice", false, true)
	must(w.Heal(0, 1))
	both("healed once", false, true)
	must(w.Heal(0, 1))
	must(w.Heal(0, 1))
	both("healed", true, true)
	if err := w.Lose(1, 0, 100); err != nil {
		t.Log("no loss here: ", err)
	} else {
		both("all of one way lost", true, false)
		must(w.Lose(1, 0, 0))
		both("no loss", true, true)
	}
	must(w.Hasten(0))
}
