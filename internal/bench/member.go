package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"

	"github.com/wardmote/wardmote/internal/machine"
	"go.etcd.io/etcd/server/v3/embed"
)

// A memberSpec is one member of a system whose members are processes of their own.
type memberSpec struct {
	System string // "wardmote" or "etcd"
	Name   string
	Dir    string // "": in memory
	Addr   string // of wardmote
	Join   []string

	Peer, Client string // etcd's URLs
	Initial      string // of etcd: all members
}

// A memberJob is a request to a member's process.
type memberJob struct {
	Do          string // see memberProcess
	Workload    string
	For         time.Duration
	PerSecond   float64
	Part, Parts int // this process has the callers whose number modulo Parts is Part
	Keys        int
	Key         string
}

// A memberAnswer is the outcome of a memberJob. The first answer says that the member is
// up.
type memberAnswer struct {
	Err          string         `json:",omitempty"`
	Each         []uint64       `json:",omitempty"`
	Buckets      map[int]uint64 `json:",omitempty"` // of the histogram of acquires
	Longest      time.Duration  `json:",omitempty"`
	Entries      uint64         `json:",omitempty"`
	Self, Leader string         `json:",omitempty"` // see members.leader
	At           time.Time      // of a grant
}

// A localMember is a member in this process.
type localMember interface {
	do(ctx context.Context, j memberJob) (memberAnswer, error)
	ready(ctx context.Context) error
	stop() error
}

// serveMember is the process of one member. It ends with its standard input.
func serveMember(text string, in io.Reader, out io.Writer) error {
	var spec memberSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	answer := json.NewEncoder(out)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	start := startWardmoteMember
	if spec.System == "etcd" {
		start = startEtcdMember
	}
	m, err := start(ctx, spec)
	if err == nil {
		err = m.ready(ctx)
	}
	if err != nil {
		answer.Encode(memberAnswer{Err: err.Error()})
		return err
	}
	return errors.Join(answerJobs(in, answer, memberAnswer{}, func(j memberJob) memberAnswer {
		ctx, cancel := context.WithTimeout(context.Background(), eventPatience)
		defer cancel()
		a, err := m.do(ctx, j)
		if err != nil {
			a = memberAnswer{Err: err.Error()}
		}
		return a
	}), m.stop())
}

// wardmoteMember is a member of wardmote with a client.
type wardmoteMember struct {
	n       *cluster.Node
	c       *locks.Client
	holders []*locks.Client // of fill
}

func startWardmoteMember(ctx context.Context, spec memberSpec) (localMember, error) {
	n, err := cluster.Start(ctx, cluster.Config{
		Name: spec.Name, Dir: spec.Dir, Bind: spec.Addr, Join: spec.Join, InitialSize: 3, Voting: cluster.Voting{Voters: 3},
	})
	if err != nil {
		return nil, err
	}
	return &wardmoteMember{n: n, c: locks.New(n, locks.Options{})}, nil
}

func (m *wardmoteMember) ready(ctx context.Context) error { return m.n.Ready(ctx) }

func (m *wardmoteMember) stop() error {
	return errors.Join(closeAll(context.Background(), append(m.holders, m.c)), m.n.Stop())
}

// do does one of: turn, a workload; grant, one cycle with Key; fill, holding Keys keys; look.
func (m *wardmoteMember) do(ctx context.Context, j memberJob) (memberAnswer, error) {
	switch j.Do {
	case "turn":
		return m.turn(j)
	case "grant":
		at, err := grantBy(ctx, wardmoteCaller{m.c}, j.Key)
		return memberAnswer{At: at}, err
	case "fill":
		clients, err := fill(ctx, m.n, j.Key, j.Keys)
		m.holders = append(m.holders, clients...)
		return memberAnswer{}, err
	case "look":
		a := memberAnswer{Self: m.n.Name()}
		if l, ok := m.n.Leader(); ok {
			a.Leader = l.Name
		}
		if r := m.n.Report().Raft; r != nil {
			a.Entries = r.Commit
		}
		return a, nil
	}
	return memberAnswer{}, fmt.Errorf("no job %q", j.Do)
}

// fillSet is the size of the sets that fill acquires.
const fillSet = 1000

// fill acquires n keys for new clients of a member, as many for each as a client may hold,
// and returns the clients.
func fill(ctx context.Context, n *cluster.Node, prefix string, count int) (clients []*locks.Client, err error) {
	for done := 0; done < count; {
		c := locks.New(n, locks.Options{})
		clients = append(clients, c)
		for end := min(done+machine.MaxHeld, count); done < end; {
			var keys []string
			for len(keys) < fillSet && done < end {
				keys = append(keys, heldKey(prefix, done))
				done++
			}
			if _, err := c.AcquireAll(ctx, keys); err != nil {
				return clients, err
			}
		}
	}
	return clients, nil
}

// closeAll ends clients, all at once.
func closeAll(ctx context.Context, clients []*locks.Client) error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { errs[i] = c.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func heldKey(prefix string, i int) string { return fmt.Sprintf("%s%07d", prefix, i) }

func (m *wardmoteMember) turn(j memberJob) (memberAnswer, error) {
	w, err := workloadOf(j.Workload)
	if err != nil {
		return memberAnswer{}, err
	}
	var callers []caller
	for i := j.Part; i < w.callers; i += j.Parts {
		callers = append(callers, wardmoteCaller{m.c})
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.For)
	defer cancel()
	r := w.part(j.Part, j.Parts).run(ctx, callers, j.PerSecond/float64(j.Parts))
	if r.err != nil {
		return memberAnswer{}, r.err
	}
	a := memberAnswer{Each: r.each, Longest: r.acquires.longest, Buckets: make(map[int]uint64)}
	for i, n := range r.acquires.buckets {
		if n > 0 {
			a.Buckets[i] = n
		}
	}
	return a, nil
}

// etcdMember is a member of etcd alone: its callers are clients elsewhere.
type etcdMember struct{ m *embed.Etcd }

func startEtcdMember(_ context.Context, spec memberSpec) (localMember, error) {
	cfg, err := etcdConfig(spec.Name, spec.Dir, spec.Peer, spec.Peer, spec.Client, spec.Initial)
	if err != nil {
		return nil, err
	}
	m, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return etcdMember{m}, nil
}

func (e etcdMember) ready(ctx context.Context) error {
	select {
	case <-e.m.Server.ReadyNotify():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e etcdMember) stop() error {
	e.m.Close()
	return nil
}

func (e etcdMember) do(_ context.Context, j memberJob) (memberAnswer, error) {
	if j.Do != "look" {
		return memberAnswer{}, fmt.Errorf("no job %q", j.Do)
	}
	return memberAnswer{Self: e.m.Server.MemberID().String(), Leader: e.m.Server.Leader().String(), Entries: e.m.Server.CommittedIndex()}, nil
}

// A memberProcess is the process of one member.
type memberProcess struct {
	spec    memberSpec
	cmd     *exec.Cmd
	in      io.Closer
	jobs    *json.Encoder
	answers *json.Decoder
}

// startMember starts a process. It must be called by the main goroutine, whose thread
// lives as long as this process: see apart.
func startMember(spec memberSpec) (*memberProcess, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &memberProcess{spec: spec, cmd: exec.Command(self, "-serve", "member", "-member", string(text))}
	m.cmd.SysProcAttr = apart()
	m.cmd.Stderr = os.Stderr
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.in, m.jobs, m.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	return m, m.cmd.Start()
}

// up waits until the member is ready.
func (m *memberProcess) up() error {
	_, err := m.answer()
	return err
}

func (m *memberProcess) answer() (memberAnswer, error) {
	var a memberAnswer
	if err := m.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("%s: %w", m.spec.Name, err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("%s: %s", m.spec.Name, a.Err)
	}
	return a, nil
}

// do has the member do a job.
func (m *memberProcess) do(j memberJob) (memberAnswer, error) {
	if err := m.jobs.Encode(j); err != nil {
		return memberAnswer{}, fmt.Errorf("%s: %w", m.spec.Name, err)
	}
	return m.answer()
}

// kill ends the process as a crash does.
func (m *memberProcess) kill() {
	m.cmd.Process.Kill()
	m.cmd.Wait()
}

func (m *memberProcess) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// stop ends the process in an orderly way, within seconds.
func (m *memberProcess) stop() {
	m.in.Close()
	kill := time.AfterFunc(10*time.Second, func() { m.cmd.Process.Kill() })
	defer kill.Stop()
	m.cmd.Wait()
}
