package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/wardmote/wardmote/locks"
)

// A plan is the work of all agents. The cluster keeps the plan as one value, and tells the
// agents of changes. The files say as well which tasks are done: a plan that is lost or
// late costs work, and no edit.
type plan struct {
	Tasks  []task
	Closed bool // nothing more will come
}

// A task adds one line, its name, to some files.
type task struct {
	Name  string
	Files []string
	Tree  string // if not empty, the directory of the files: they are locked as one tree
	Done  bool
}

const planKey = "plan"

// plans yields the plan, and then the latest plan after each change.
func plans(ctx context.Context, c *locks.Client) iter.Seq2[plan, error] {
	return func(yield func(plan, error) bool) {
		for value, err := range c.Cell(planKey).Watch(ctx) {
			var p plan
			if err == nil {
				err = decode(value, &p)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// changePlan changes the plan. Concurrent changes come one after the other.
func changePlan(ctx context.Context, c *locks.Client, change func(*plan)) error {
	var failed error
	err := c.Cell(planKey).Update(ctx, func(old []byte) []byte {
		var p plan
		if failed = decode(old, &p); failed != nil {
			return old
		}
		change(&p)
		var value []byte
		value, failed = json.Marshal(p)
		return value
	})
	return errors.Join(err, failed)
}

func decode(value []byte, p *plan) error {
	if value == nil {
		return nil
	}
	return json.Unmarshal(value, p)
}

func (p *plan) allDone() bool {
	return !slices.ContainsFunc(p.Tasks, func(t task) bool { return !t.Done })
}

// orchestrate is the work of the elected agent: a plan in two rounds, the second after
// the results of the first. An orchestrator that dies or is paused stops no agent: the next
// orchestrator continues with the present plan, and each change begins with a look at the
// plan, so that a late or repeated change does nothing.
func orchestrate(ctx context.Context, c *locks.Client) error {
	for p, err := range plans(ctx, c) {
		switch {
		case err != nil:
			return err
		case p.Closed:
			return locks.Final(nil)
		case !p.allDone():
			continue // agents are at work
		}
		if err := changePlan(ctx, c, func(p *plan) {
			switch first, second := rounds(); {
			case len(p.Tasks) == 0:
				p.Tasks = first
			case len(p.Tasks) == len(first) && p.allDone():
				p.Tasks = append(p.Tasks, second...)
			case p.allDone():
				p.Closed = true
			}
		}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// The files of the tree, and the tasks.
var names = []string{"api/order", "api/user", "db/order", "db/user", "ui/order", "ui/user"}

func rounds() (first, second []task) {
	// Neighbours have a file in common: their agents need each other's files.
	for i := range names {
		first = append(first, task{Name: fmt.Sprint("pair-", i), Files: []string{names[i], names[(i+1)%len(names)]}})
	}
	first = append(first, task{Name: "all-of-api", Files: names[:2], Tree: "api"})
	return first, []task{{Name: "release", Files: names, Tree: "."}}
}
