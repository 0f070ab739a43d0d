package towns

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

// Parent starts processes, and stays the parent until the last one has ended. The methods may
// be called from any goroutine.
type Parent struct {
	starts chan func()
	thread sync.WaitGroup

	mu       sync.Mutex
	children []*Process
}

// NewParent returns a Parent without children. The caller must Close the Parent.
func NewParent() *Parent {
	p := &Parent{starts: make(chan func())}
	p.thread.Go(func() {
		// For the kernel the parent of a process ends with the thread of the start. The
		// thread is locked for good, and so ends with Close.
		runtime.LockOSThread()
		for start := range p.starts {
			start()
		}
	})
	return p
}

// Close kills every running process, and waits for the ends. No Start may run
// meanwhile or follow.
func (p *Parent) Close() {
	p.mu.Lock()
	children := p.children
	p.mu.Unlock()
	for _, c := range children {
		c.Kill()
	}
	close(p.starts)
	p.thread.Wait()
}

// Program describes a process to start.
type Program struct {
	Args []string          // the program and its arguments; none: this test binary
	Wrap []string          // a command in front of the program that executes it, or none
	Env  []string          // beside the environment of this process
	Line func(line []byte) // gets each line of the standard output, one at a time; nil: the output is dropped
	Log  io.Writer         // gets the standard error too, or nil
}

// Process is a started process. The methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{}
	err  error // once gone

	write  sync.Mutex // of in
	mu     sync.Mutex
	stderr bytes.Buffer
	log    io.Writer
}

// Start starts a process. On error nothing runs.
func (p *Parent) Start(prog Program) (*Process, error) {
	args := prog.Args
	if len(args) == 0 {
		bin, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args = []string{bin}
	}
	args = append(append([]string(nil), prog.Wrap...), args...)
	c := &Process{gone: make(chan struct{}), log: prog.Log}
	c.cmd = exec.Command(args[0], args[1:]...)
	c.cmd.Env = append(os.Environ(), prog.Env...)
	c.cmd.Stderr = (*stderr)(c)
	dieWithParent(c.cmd)
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		failed := make(chan error)
		p.starts <- func() { failed <- c.cmd.Start() }
		err = <-failed
	}
	if err != nil {
		return nil, err
	}
	var read sync.WaitGroup
	read.Go(func() {
		lines := bufio.NewReaderSize(out, 1<<16)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return // a line cut short by a kill says nothing
			}
			if prog.Line != nil {
				prog.Line(line)
			}
		}
	})
	go func() {
		read.Wait()
		c.err = c.cmd.Wait()
		close(c.gone)
	}()
	p.mu.Lock()
	p.children = append(p.children, c)
	p.mu.Unlock()
	return c, nil
}

// stderr takes the standard error of a process.
type stderr Process

func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		_, _ = s.log.Write(b)
	}
	return s.stderr.Write(b)
}

// Pid returns the number of the process.
func (c *Process) Pid() int { return c.cmd.Process.Pid }

// Gone returns a channel, closed when the process has ended and all output was read.
func (c *Process) Gone() <-chan struct{} { return c.gone }

// Ended reports whether the process has ended.
func (c *Process) Ended() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// Err returns the error of the process, once it is gone: nil after exit status 0.
func (c *Process) Err() error { return c.err }

// ExitCode returns the exit status, once the process is gone, and -1 if a signal ended it.
func (c *Process) ExitCode() int { return c.cmd.ProcessState.ExitCode() }

// Send writes a line, without its end, to the standard input. Send waits while the pipe is
// full, as that of a stopped process may be.
func (c *Process) Send(line []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.in.Write(append(line[:len(line):len(line)], '\n'))
	return err
}

// EndInput ends the standard input.
func (c *Process) EndInput() { _ = c.in.Close() }

// Signal sends a signal to the process.
func (c *Process) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill ends the process at once, stopped or not, and waits for the end.
func (c *Process) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.gone
}

// Pause stops all threads of the process until Resume.
func (c *Process) Pause() error { return pause(c.Pid()) }

// Resume lets a paused process run.
func (c *Process) Resume() error { return resume(c.Pid()) }

// Log returns the standard error so far.
func (c *Process) Log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}
