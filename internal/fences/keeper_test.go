//go:build unix

package fences

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary starts itself as the parent of each server, the keeper. The keeper's
// input is a pipe from the tests. The pipe ends with the tests, even if the tests are
// killed; then the keeper kills its server and removes the server's directory.
const (
	keptDir  = "WARDMOTE_FENCES_KEPT_DIR"  // the directory of the server to keep
	keptUser = "WARDMOTE_FENCES_KEPT_USER" // the server's user, "uid gid"
	orphan   = "WARDMOTE_FENCES_ORPHAN"    // start redis and wait to be killed
)

// keeperOf returns the command of a keeper, which runs the server until its input ends.
func keeperOf(server *exec.Cmd, dir string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	keeper := exec.Command(self, append([]string{server.Path}, server.Args[1:]...)...)
	keeper.Env = append(os.Environ(), keptDir+"="+dir)
	if server.SysProcAttr != nil {
		c := server.SysProcAttr.Credential
		keeper.Env = append(keeper.Env, fmt.Sprintf("%s=%d %d", keptUser, c.Uid, c.Gid))
	}
	keeper.Stderr = os.Stderr
	// A signal to the group of the tests, as by an interrupt, ends the tests first.
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return keeper, nil
}

// keep is the keeper.
func keep(dir string) error {
	server := exec.Command(os.Args[1], os.Args[2:]...)
	server.Dir = dir
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if text := os.Getenv(keptUser); text != "" {
		c := new(syscall.Credential)
		if _, err := fmt.Sscan(text, &c.Uid, &c.Gid); err != nil {
			return err
		}
		server.SysProcAttr.Credential = c
	}
	if err := server.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	var failed error
	select {
	case err := <-ended:
		failed = fmt.Errorf("%s ended by itself: %w", server.Path, err)
	case <-over:
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL) // the whole group
		<-ended
	}
	return errors.Join(failed, os.RemoveAll(dir))
}

// beOrphan starts redis, tells where, and waits to be killed.
func beOrphan() error {
	if err := redis.begin(); err != nil {
		return err
	}
	fmt.Println(redis.port, redis.dir)
	// A bare select would be taken for a deadlock.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt)
	<-asked
	return nil
}

// Killed tests leave no server and no directory.
func TestServersEndWithKilledTests(t *testing.T) {
	if _, err := find("redis-server"); err != nil {
		redis.require(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := exec.CommandContext(ctx, self)
	tests.Env = append(os.Environ(), orphan+"=1")
	// The keeper shares this pipe, so the end of the pipe is the end of the keeper.
	ends, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	tests.Stderr = pipe
	out, err := tests.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = tests.Start()
	pipe.Close()
	if err != nil {
		t.Fatal(err)
	}
	var port int
	var dir string
	if _, err := fmt.Fscan(out, &port, &dir); err != nil {
		_ = tests.Process.Kill()
		_ = tests.Wait()
		said, _ := io.ReadAll(ends)
		t.Fatalf("the child started no server: %v: %s", err, said)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := tests.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = tests.Wait()
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || n > 0 {
		t.Fatalf("the server outlives its tests: %v", err)
	}
	if err := ends.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(ends); err != nil || len(strings.TrimSpace(string(said))) > 0 {
		t.Errorf("the keeper: %v: %s", err, said)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the server: %v", err)
	}
}
