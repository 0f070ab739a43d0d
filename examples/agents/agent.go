package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// An agent takes tasks from the plan until the plan is closed.
type agent struct {
	name   string
	number int
	client *locks.Client
	tree   tree
	say    func(format string, args ...any)

	// The demonstration stops or kills the process here.
	beforeWrite, afterFirstFile func(task)
}

// run works, and stands for election as orchestrator, until the plan is closed.
func (a *agent) run(ctx context.Context) error {
	standing, stop := context.WithCancel(ctx)
	defer stop()
	var election sync.WaitGroup
	election.Go(func() {
		// The log has the error of a term, and the next term repeats the step.
		_ = a.client.Elect(standing, "orchestrator", func(ctx context.Context, _ *locks.Lock) error {
			a.say("is the orchestrator")
			return orchestrate(ctx, a.client)
		})
	})
	err := a.work(ctx)
	stop()
	election.Wait()
	return err
}

func (a *agent) work(ctx context.Context) error {
	for {
		t, ok, err := a.next(ctx)
		if err != nil || !ok {
			return err
		}
		// The lock of the task only saves work: two agents at one task would take turns
		// at the files, and the second agent would find all lines there.
		err = a.client.Do(ctx, "task/"+t.Name, func(ctx context.Context, _ *locks.Lock) error {
			if open, err := a.open(ctx, t); err != nil || !open {
				return err // another agent was first
			}
			if err := a.edit(ctx, t); err != nil {
				return err
			}
			return changePlan(ctx, a.client, func(p *plan) {
				for i := range p.Tasks {
					p.Tasks[i].Done = p.Tasks[i].Done || p.Tasks[i].Name == t.Name
				}
			})
		})
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case errors.Is(err, locks.ErrLost), errors.Is(err, locks.ErrSessionLost), errors.Is(err, locks.ErrUncertain):
			// The grant is over, and another agent may have the task. All steps can be
			// repeated, so nothing has to be cleaned up.
			a.say("gives up %s: %v", t.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			// Also a refusal by a fence without a loss: then another cluster writes the
			// files.
			return err
		}
	}
}

// next waits for an open task. ok is false if there will be none. Agents begin at
// different tasks, so that they seldom wait for each other.
func (a *agent) next(ctx context.Context) (t task, ok bool, err error) {
	for p, err := range plans(ctx, a.client) {
		if err != nil || p.Closed {
			return task{}, false, err
		}
		for i := range p.Tasks {
			if t := p.Tasks[(i+a.number)%len(p.Tasks)]; !t.Done {
				return t, true, nil
			}
		}
	}
	return task{}, false, context.Cause(ctx)
}

// open reports whether the task is not done yet.
func (a *agent) open(ctx context.Context, t task) (bool, error) {
	for p, err := range plans(ctx, a.client) {
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(p.Tasks, func(u task) bool { return u.Name == t.Name })
		return i >= 0 && !p.Tasks[i].Done, nil
	}
	return false, context.Cause(ctx)
}

// edit adds the task's line to each of its files, once.
func (a *agent) edit(ctx context.Context, t task) (err error) {
	// All files are granted together, or none: agents with overlapping tasks cannot block
	// each other in a circle.
	var keys []string
	var options []locks.Option
	if t.Tree != "" {
		keys, options = []string{path.Join("tree", t.Tree)}, []locks.Option{locks.Tree()}
	} else {
		for _, name := range t.Files {
			keys = append(keys, path.Join("tree", name))
		}
	}
	set, err := a.client.AcquireAll(ctx, keys, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Release(ctx)) }()

	// Claim all before the first read.
	for _, name := range t.Files {
		if err := a.tree.claim(name, set.Token()); err != nil {
			return err
		}
	}
	texts := make(map[string]string)
	for _, name := range t.Files {
		if texts[name], err = a.tree.read(name); err != nil {
			return err
		}
	}
	if err := a.ask(set.Context()); err != nil {
		return err
	}
	// The process may be stopped here, or anywhere, for any time.
	a.beforeWrite(t)
	for i, name := range t.Files {
		if has(texts[name], t.Name) {
			continue // from an agent that died between two files
		}
		err := a.tree.write(name, set.Token(), texts[name]+t.Name+"\n")
		if errors.Is(err, fence.ErrStale) {
			a.say("is REFUSED by the fence of %s: %v", name, err)
		}
		if err != nil {
			return err
		}
		if i == 0 {
			a.afterFirstFile(t)
		}
	}
	a.say("has done %s", t.Name)
	return nil
}

// ask stands for a call of a model that no more than two agents may use at a time.
func (a *agent) ask(ctx context.Context) error {
	return a.client.Do(ctx, "model", func(ctx context.Context, _ *locks.Lock) error {
		select {
		case <-time.After(20 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the model was not asked: %w", context.Cause(ctx))
		}
	}, locks.Permits(1, 2))
}
