package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is the parent's handle on a member's process.
type process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed bool          // the parent called kill
	reaped chan struct{} // closed when the process is gone and readEvents has returned
}

// start starts a member. The member's events arrive on d.events; the last event is
// exited.
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
	cmd := exec.CommandContext(d.ctx, exe, args...)
	cmd.SysProcAttr = ownGroup()
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
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
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{name: name, cmd: cmd, in: in, reaped: make(chan struct{})}
	d.processes[name] = p
	d.board.started(name, cmd.Process.Pid)
	go d.readEvents(p, out, stderr)
	return nil
}

// readEvents sends the events of a process to d.events until the process ends, and
// then an exited event.
func (d *demo) readEvents(p *process, out io.Reader, stderr *bytes.Buffer) {
	defer close(p.reaped)
	send := func(e event) {
		select {
		case d.events <- e:
		case <-d.ctx.Done():
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
	if said := lastWords(stderr); said != "" {
		e.Detail += ": " + said
	}
	send(e)
}

// kill is kill -9: the process cannot catch the signal, delay its end or clean up.
// kill works on stopped processes, too.
func (d *demo) kill(ctx context.Context, name string) error {
	p := d.processes[name]
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return d.waitUntil(ctx, "the end of "+name+"'s process", func() bool { return d.board.row(name).state == dead })
}

// pauseMidWrite stops a process in the middle of a write to each of its shards.
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
	if err := d.waitUntil(ctx, name+" to be in the middle of a write to each of its shards", all); err != nil {
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

// cut cuts a process off from all others. The process runs on.
func (d *demo) cut(name string) error {
	d.board.row(name).state = cutOff
	_, err := fmt.Fprintln(d.processes[name].in, commandCut)
	return err
}

func (d *demo) heal(name string) error {
	if r := d.board.row(name); r.state == cutOff {
		r.state = running
		_, err := fmt.Fprintln(d.processes[name].in, commandHeal)
		return err
	}
	return nil
}

// close kills all processes and removes the folder, unless keep is set. close may
// be called several times and from any goroutine.
func (d *demo) close() {
	d.endAll()
	if !d.keep {
		os.RemoveAll(d.folder)
	}
}

// endAll kills all processes and waits until they are gone. After endAll no process
// can be started and no event arrives.
func (d *demo) endAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, p := range d.processes {
		<-p.reaped
	}
}

// lastWords returns the end of a process's standard error.
func lastWords(stderr *bytes.Buffer) string {
	const most = 2048 // bytes
	said := stderr.Bytes()
	return strings.TrimSpace(string(said[max(0, len(said)-most):]))
}
