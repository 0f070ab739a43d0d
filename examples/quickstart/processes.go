package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one member's process, as the parent has it.
type process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	ending bool          // killed by kill
	reaped chan struct{} // closed when nothing is left of it
}

// start starts a member. Its events come over d.events; the last one is exited.
func (d *demo) start(name string, initial int, join []string) error {
	args := []string{memberCommand, "-name", name, "-folder", d.folder,
		"-initial", fmt.Sprint(initial), "-join", strings.Join(join, ",")}
	if d.keep {
		args = append(args, "-keep")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, args...)
	cmd.SysProcAttr = apart()
	complaints := new(tail)
	cmd.Stderr = complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("it is over")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{name: name, cmd: cmd, in: in, reaped: make(chan struct{})}
	d.processes[name] = p
	d.board.started(name, cmd.Process.Pid)
	go d.follow(p, out, complaints)
	return nil
}

// follow hands on what a process says, and reaps it.
func (d *demo) follow(p *process, out io.Reader, complaints *tail) {
	defer close(p.reaped)
	send := func(e event) {
		select {
		case d.events <- e:
		case <-d.over:
		}
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Member == p.name {
			send(e)
		}
	}
	err := p.cmd.Wait()
	p.in.Close()
	e := event{Kind: exited, Member: p.name, Detail: "exit status 0"}
	if err != nil {
		e.Detail = err.Error()
	}
	if said := complaints.String(); said != "" {
		e.Detail += ": " + said
	}
	send(e)
}

// kill is kill -9: it cannot be caught, put off or cleaned up after. It works on
// stopped processes, too.
func (d *demo) kill(ctx context.Context, name string) error {
	p := d.processes[name]
	p.ending = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return d.until(ctx, "the end of "+name+"'s process", func() bool { return d.board.row(name).state == dead })
}

// pauseMidWrite stops a process while it prepares a write to each of its shards.
func (d *demo) pauseMidWrite(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r := d.board.row(name)
	clear(r.preparing)
	if _, err := fmt.Fprintln(d.processes[name].in, commandSlow); err != nil {
		return err
	}
	all := func() bool {
		for _, shard := range d.board.shardsOf(name) {
			if !r.preparing[shard] {
				return false
			}
		}
		return true
	}
	if err := d.until(ctx, name+" to be in the middle of a write to each of its shards", all); err != nil {
		return err
	}
	if err := stopProcess(d.processes[name].cmd.Process); err != nil {
		return err
	}
	r.state = paused
	return nil
}

func (d *demo) resume(name string) error {
	if r := d.board.row(name); r.state == paused {
		r.state = running
		return continueProcess(d.processes[name].cmd.Process)
	}
	return nil
}

// close ends all that was started: no process is left, and no folder. It may be
// called again, and from any goroutine.
func (d *demo) close() {
	d.endAll()
	if !d.keep {
		os.RemoveAll(d.folder)
	}
}

// endAll kills every process and waits until it is gone. None can be started
// after it, and no events come any more.
func (d *demo) endAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.over)
	}
	for _, p := range d.processes {
		// It fails only if the process has ended already.
		_ = p.cmd.Process.Kill()
	}
	for _, p := range d.processes {
		<-p.reaped
	}
}

// tail keeps the end of what is written to it: what a process said last on its
// standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 2048 // bytes

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = t.text[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
