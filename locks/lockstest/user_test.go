package lockstest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// The tests of a user, as in the package's comment.

func TestMySchedulerMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		for i := range 3 {
			go c.Client(i).Elect(t.Context(), "scheduler", schedule)
		}
		first, _ := c.WaitHeld("scheduler")
		time.Sleep(time.Minute) // takes a moment: time is the bubble's
		c.KillHolder("scheduler")
		killed := time.Now()
		next, _ := c.WaitHeld("scheduler")
		if took := time.Since(killed); next == first || took > 5*time.Second {
			t.Errorf("member %d leads after %v", next, took)
		}
	})
}

func TestMyWriterIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		account := newAccount()
		old, err := c.Client(0).Acquire(t.Context(), "account")
		if err != nil {
			t.Fatal(err)
		}
		c.Freeze(0) // the garbage collector runs just before the write
		l, err := c.Client(1).Acquire(t.Context(), "account")
		if err != nil {
			t.Fatal(err)
		}
		if err := account.Write(l.Token(), "from member 1"); err != nil {
			t.Error(err)
		}
		c.Thaw(0)
		if err := account.Write(old.Token(), "from member 0"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the late write returned %v", err)
		}
		if err := old.Err(); !errors.Is(err, locks.ErrLost) {
			t.Errorf("the late writer was told %v", err)
		}
	})
}

func TestMyServiceSurvivesAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		held, err := c.Client(0).Acquire(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		c.HangStore(c.Leader())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.Client(1).Do(ctx, "job", work); err != nil {
			t.Errorf("no lock beside a disk that hangs: %v", err)
		}
		if err := held.Err(); err != nil {
			t.Errorf("a lock was lost: %v", err)
		}
	})
}

// The user's own code.

func schedule(ctx context.Context, l *locks.Lock) error {
	<-ctx.Done()
	return ctx.Err()
}

func work(context.Context, *locks.Lock) error { return nil }

type account struct {
	guard fence.Guard
	text  string
}

func newAccount() *account { return &account{} }

func (a *account) Write(token fence.Token, text string) error {
	return a.guard.Do(token, func() error {
		a.text = text
		return nil
	})
}

// The package's comment has the tests above word for word.
func TestTheCommentHasTheTests(t *testing.T) {
	code, err := os.ReadFile("user_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := regexp.MustCompile(`(?ms)^func TestMy.*?^}\n`).FindAllString(string(code), -1)
	if len(tests) != 3 {
		t.Fatalf("%d tests", len(tests))
	}
	for _, test := range tests {
		var comment strings.Builder
		for line := range strings.Lines(test) {
			fmt.Fprintf(&comment, "//\t%s", line)
		}
		if !strings.Contains(string(doc), comment.String()) {
			t.Errorf("not in doc.go:\n%s", comment.String())
		}
	}
}
