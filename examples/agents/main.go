// Command agents lets three processes work on one file tree, as coding agents do. One is
// killed between two files of a task; one is stopped right before a write, and wakes up
// when all work is done. No edit is lost, and none is made twice:
//
//	go run ./examples/agents
//
// Four dangers, and the means of each:
//
//	two agents change one file        the files of a task are locked together, as a set or
//	                                  as a tree; an agent waits for all of them, or holds none
//	a paused agent writes late        each file has a mark, and refuses a lower token
//	an agent or the orchestrator dies the orchestrator is elected, and each step can be
//	                                  repeated: the next one finds what was done
//	all use one service at a time     two permits, for three agents
//
// Copy agent.go, plan.go and tree.go; the rest is the demonstration.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// agentCommand is the first argument of an agent's process.
const agentCommand = "agent"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == agentCommand {
		err = agentMain(ctx, os.Args[2:])
	} else {
		ttl := flag.Duration("ttl", 2*time.Second, "the time after which a dead agent's locks are free")
		flag.Parse()
		err = demo(ctx, os.Stdout, *ttl)
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
}

const (
	pauseFault = "pause"
	killFault  = "kill"
	stoppedKey = "stopped" // the cell that tells of a process that is about to stop
)

// demo runs the agents in processes of their own, and checks the tree. The demo has the
// cluster's only vote; a cluster with three voters survives the death of any process.
func demo(ctx context.Context, out io.Writer, ttl time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "wardmote-agents")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := tree{files: filepath.Join(dir, "files"), marks: filepath.Join(dir, "marks")}
	if err := os.Mkdir(t.marks, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(t.files, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			return err
		}
	}
	// A member with a Dir stops at once, and looks for no successor: the cluster ends here.
	node, err := cluster.Start(ctx, cluster.Config{InitialSize: 1, TTL: ttl, Dir: filepath.Join(dir, "cluster")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	client := locks.New(node, locks.Options{})
	defer client.Close(ctx)

	ctx, cancel := context.WithCancel(ctx)
	var agents []*process
	defer func() {
		cancel() // kills the agents that still run
		for _, p := range agents {
			<-p.done
		}
	}()
	lines := &sink{out: out}
	begin := func(name, fault string) (*process, error) {
		p, err := startAgent(ctx, lines, name, "-number", strconv.Itoa(2*len(agents)), "-dir", dir,
			"-join", node.Addr(), "-ttl", ttl.String(), "-fault", fault)
		if err == nil {
			agents = append(agents, p)
		}
		return p, err
	}
	ann, err := begin("ann", pauseFault)
	if err != nil {
		return err
	}
	ben, err := begin("ben", killFault)
	if err != nil {
		return err
	}
	<-ben.done
	for value, err := range client.Cell(stoppedKey).Watch(ctx) {
		if err != nil {
			return err
		}
		if value != nil || !canPause {
			break
		}
	}
	cid, err := begin("cid", "") // and goes on with the work
	if err != nil {
		return err
	}
	for p, err := range plans(ctx, client) {
		if err != nil {
			return err
		}
		if p.Closed {
			break
		}
	}
	fmt.Fprintln(lines, "All tasks are done. ann is woken up:")
	if err := wake(ann.cmd.Process); err != nil {
		return err
	}
	for _, p := range []*process{ann, cid} {
		if <-p.done; p.err != nil {
			return fmt.Errorf("%s has ended with: %w", p.name, p.err)
		}
	}
	if ben.err == nil {
		return errors.New("ben was not killed")
	}
	return check(lines, t)
}

// check counts the lines of each task.
func check(out io.Writer, t tree) error {
	first, second := rounds()
	edits, lost, twice := 0, 0, 0
	for _, task := range append(first, second...) {
		for _, name := range task.Files {
			text, err := t.read(name)
			if err != nil {
				return err
			}
			edits++
			switch n := strings.Count("\n"+text, "\n"+task.Name+"\n"); {
			case n == 0:
				lost++
			case n > 1:
				twice++
			}
		}
	}
	fmt.Fprintf(out, "%d edits of %d files: %d lost, %d made twice\n", edits, len(names), lost, twice)
	if lost+twice > 0 {
		return errors.New("the tree is damaged")
	}
	return nil
}

// A process is an agent's.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended, with err
	err  error
}

func startAgent(ctx context.Context, out io.Writer, name string, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{agentCommand, "-name", name}, args...)...)
	cmd.SysProcAttr = ownGroup()
	cmd.Stdout, cmd.Stderr = out, out
	// The agent ends with its standard input, and so also if the demo is killed.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// A sink takes lines from several processes.
type sink struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *sink) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(text)
}

// agentMain is an agent's process.
func agentMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("agent", flag.ExitOnError)
	name := flags.String("name", "", "")
	number := flags.Int("number", 0, "")
	dir := flags.String("dir", "", "")
	join := flags.String("join", "", "")
	ttl := flags.Duration("ttl", 0, "")
	fault := flags.String("fault", "", "")
	_ = flags.Parse(args)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // until the process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	say := func(format string, args ...any) {
		line := new(bytes.Buffer)
		fmt.Fprintf(line, "  "+*name+" "+format+"\n", args...)
		_, _ = os.Stdout.Write(line.Bytes()) // in one piece
	}
	// Each fault comes once: in the first task of the agent.
	var once sync.Once
	at := func(place, what string, f func() error) func(task) {
		return func(t task) {
			if *fault != place || place == pauseFault && !canPause {
				return
			}
			once.Do(func() {
				say(what, t.Name)
				if err := f(); err != nil {
					say("cannot: %v", err)
				}
			})
		}
	}
	cfg := cluster.Config{Name: *name, Join: []string{*join}, TTL: *ttl, Voting: cluster.Voting{Thin: true}}
	return wardmote.Run(ctx, cfg, func(ctx context.Context, c *locks.Client) error {
		a := &agent{name: *name, number: *number, client: c, say: say,
			tree: tree{files: filepath.Join(*dir, "files"), marks: filepath.Join(*dir, "marks")},
			beforeWrite: at(pauseFault, "is stopped before it writes %s", func() error {
				if err := c.Cell(stoppedKey).Update(ctx, func([]byte) []byte { return []byte(*name) }); err != nil {
					return err
				}
				return pause()
			}),
			afterFirstFile: at(killFault, "is killed between two files of %s", kill),
		}
		return a.run(ctx)
	})
}

// kill is kill -9 of this process.
func kill() error {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	select {} // the end is under way
}
