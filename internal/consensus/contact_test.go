package consensus

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
)

// Only changes are news: the first answer, a failure after an answer, an answer
// after a failure, and the log catching up or falling behind.
func TestContactIsNotedAndItsChangesAreNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Raft{contacts: newContacts()}
		for i, step := range []struct {
			do   func(*contacts)
			news bool
			want member.Contact // without Last
		}{
			{func(c *contacts) { c.failed("b") }, true, member.Contact{Failing: true}},
			{func(c *contacts) { c.failed("b") }, false, member.Contact{Failing: true}},
			{func(c *contacts) { c.answered("b", 0, 0) }, true, member.Contact{}},
			{func(c *contacts) { c.answered("b", 0, 0) }, false, member.Contact{}},
			{func(c *contacts) { c.answered("b", 10, 11+currentLag) }, false, member.Contact{}},
			{func(c *contacts) { c.answered("b", 10, 10+currentLag) }, true, member.Contact{Current: true}},
			{func(c *contacts) { c.answered("b", 0, 0) }, false, member.Contact{Current: true}},
			{func(c *contacts) { c.failed("b") }, true, member.Contact{Failing: true, Current: true}},
			{func(c *contacts) { c.answered("b", 10, 10+lostLag) }, true, member.Contact{Current: true}},
			{func(c *contacts) { c.answered("b", 10, 11+lostLag) }, true, member.Contact{}},
			{func(c *contacts) { c.answered("b", 10, 11+currentLag) }, false, member.Contact{}},
		} {
			time.Sleep(time.Second)
			before := r.Contact("b").Last
			step.do(r.contacts)
			news := false
			select {
			case <-r.ContactChanged():
				news = true
			default:
			}
			got := r.Contact("b")
			last := before
			if !step.want.Failing {
				last = time.Now()
			}
			if !got.Last.Equal(last) {
				t.Errorf("step %d: last answer at %v, want %v", i, got.Last, last)
			}
			got.Last = time.Time{}
			if news != step.news || got != step.want {
				t.Errorf("step %d: news %t, %+v; want %t, %+v", i, news, got, step.news, step.want)
			}
		}
	})
}

func TestContactsAreBounded(t *testing.T) {
	c := newContacts()
	for i := range 10 * maxContacts {
		c.answered(raft.ServerID(fmt.Sprint(i)), 0, 0)
	}
	if len(c.last) > maxContacts {
		t.Errorf("%d contacts are kept", len(c.last))
	}
}
