package fencetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// A Resource is a value protected by a guard. The methods may be called from any
// goroutine.
type Resource interface {
	// Claim shows the token t before the first read under t. Claim returns nil, an
	// error matching fence.ErrStale if a higher token was shown, fence.ErrUnfenced for
	// token zero, or any other error if the outcome is unknown. After an unknown outcome
	// the suite tries again or gives the grant up.
	Claim(ctx context.Context, t fence.Token) error

	// Write replaces the value under the token t, and fails like Claim. Write may
	// refuse an unclaimed token with fence.ErrNotClaimed. After any other error the
	// value may or may not have been written.
	Write(ctx context.Context, t fence.Token, value string) error

	// Read returns the value, and the empty text if there is none.
	Read(ctx context.Context) (string, error)
}

// A Deleter is a Resource with a method to delete the value. Delete fails like Write, and
// after Delete the value is empty. Run plays the case of deletion and re-insert on
// Deleters only.
type Deleter interface {
	Resource
	Delete(ctx context.Context, t fence.Token) error
}

// An AnswerLoser can lose the answer to a write: the next Write takes effect, and returns
// an error as after a lost answer. Write may also find out by itself and return nil.
type AnswerLoser interface {
	Resource
	LoseAnswer()
}

// A Reopener can be opened a second time, as by another process or after a restart.
type Reopener interface {
	Resource
	Reopen(tb testing.TB) Resource
}

// Run plays all cases on new resources, each as a subtest with the name of the case. If
// the Resource lacks a method for a case, Run leaves the case out and says so in the log.
func Run(t *testing.T, open func(testing.TB) Resource) {
	t.Helper()
	t.Run("the control fails", func(t *testing.T) {
		for _, c := range cases {
			if !c.control {
				continue
			}
			if err := c.play(t, func(testing.TB) Resource { return &control{} }); err == nil {
				t.Errorf("%s: a guard that compares and then writes passes", c.name)
			}
		}
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != nil {
				if lacks := c.needs(open(t)); lacks != "" {
					t.Logf("left out: the resource is no %s", lacks)
					return
				}
			}
			if err := c.play(t, open); err != nil {
				t.Error(err)
			}
		})
	}
}

// Cases returns the names of all cases, in the order of Run.
func Cases() []string {
	names := make([]string, 0, len(cases)+1)
	names = append(names, "the control fails")
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// bound is the time limit of a case. A case takes milliseconds, and seconds on a database
// under the load of others.
const bound = time.Minute

type oneCase struct {
	name    string
	control bool // the control must fail the case
	needs   func(Resource) (lacks string)
	run     func(p *player) error
}

func (c oneCase) play(tb testing.TB, open func(testing.TB) Resource) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return c.run(&player{tb: tb, ctx: ctx, open: func() Resource { return open(tb) }})
}

// A player plays one case.
type player struct {
	tb   testing.TB
	ctx  context.Context
	open func() Resource
}

// wants checks that the outcome of a call matches want.
func wants(call string, err, want error) error {
	switch {
	case want == nil && err != nil:
		return fmt.Errorf("%s: %w", call, err)
	case want != nil && !errors.Is(err, want):
		return fmt.Errorf("%s returned %v, want an error that matches %q", call, err, want)
	}
	return nil
}

func (p *player) claims(r Resource, t fence.Token, want error) error {
	return wants(fmt.Sprintf("Claim(%d)", t), r.Claim(p.ctx, t), want)
}

func (p *player) writes(r Resource, t fence.Token, value string, want error) error {
	return wants(fmt.Sprintf("Write(%d, %q)", t, value), r.Write(p.ctx, t, value), want)
}

func (p *player) reads(r Resource, want string) error {
	got, err := r.Read(p.ctx)
	if err != nil {
		return fmt.Errorf("Read: %w", err)
	}
	if got != want {
		return fmt.Errorf("Read returned %q, want %q", got, want)
	}
	return nil
}

// first runs steps in order up to the first error.
func first(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

type pauseKey struct{}

// Pause marks a place in a Resource's Write where the process could be stopped: after
// the check, before the commit. The suite stops some writes there, while others go on.
// Pause returns at once for every other write, and for every ctx not from the suite.
func Pause(ctx context.Context, place string) {
	if stop, ok := ctx.Value(pauseKey{}).(func(string)); ok {
		stop(place)
	}
}
