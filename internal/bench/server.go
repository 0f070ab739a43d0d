package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
	"time"
)

// A server is a peer's process. It dies with this process.
type server struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startServer runs a program whose output goes to a file.
func startServer(log, name string, args ...string) (*server, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s := &server{cmd: exec.Command(name, args...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = apart()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// stopServers ends the servers with SIGTERM, and with SIGKILL those that stay.
func stopServers(servers []*server) error {
	var errs []error
	for _, s := range servers {
		s.cmd.Process.Signal(syscall.SIGTERM)
	}
	patience := time.After(5 * time.Second)
	for _, s := range servers {
		select {
		case <-s.done:
		case <-patience:
			errs = append(errs, s.cmd.Process.Kill())
			<-s.done
		}
	}
	return errors.Join(errs...)
}

// freePorts returns ports of loopback that nobody uses at the moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// moduleVersion returns the version of a module in this binary.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return fmt.Sprint(path, " of an unknown version")
}
