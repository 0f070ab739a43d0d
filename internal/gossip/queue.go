package gossip

import (
	"slices"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
)

const (
	// maxUndialled bounds the processes that wait to be dialled.
	maxUndialled = 1024

	// maxCallers bounds the callers among them.
	maxCallers = 64
)

// queue has the processes that wait to be dialled, by gossip name. A caller is a
// process that has opened a stream to this member, by the words of its preamble: the
// words prove nothing, but a stream costs more than a packet, and the port bounds the
// streams. So callers are dialled first, and a flood of packets keeps no newcomer
// waiting. census.mu guards the queue.
type queue struct {
	waiting  map[string]memberlist.Node // as told last
	dialling map[string]bool
	callers  map[string]bool
}

func newQueue() queue {
	return queue{make(map[string]memberlist.Node), make(map[string]bool), make(map[string]bool)}
}

// add queues a process. In a full queue the process takes the place of any other one
// that is no caller, so that no flood keeps a process out for good.
func (q *queue) add(m memberlist.Node) {
	if _, ok := q.waiting[m.Name]; !ok && len(q.waiting) >= maxUndialled {
		for name := range q.waiting {
			if !q.callers[name] && !q.dialling[name] {
				delete(q.waiting, name)
				break
			}
		}
	}
	q.waiting[m.Name] = m
}

// next returns a process to be dialled now. The process stays in the queue until
// remove.
func (q *queue) next() (m memberlist.Node, ok bool) {
	for name := range q.callers {
		if m, ok = q.waiting[name]; ok && !q.dialling[name] {
			q.dialling[name] = true
			return m, true
		}
	}
	for name, m := range q.waiting {
		if !q.dialling[name] {
			q.dialling[name] = true
			return m, true
		}
	}
	return m, false
}

// called notes a caller.
func (q *queue) called(name string) {
	if len(q.callers) >= maxCallers && !q.callers[name] {
		for other := range q.callers {
			delete(q.callers, other)
			break
		}
	}
	q.callers[name] = true
}

// remove takes a process off the queue.
func (q *queue) remove(name string) {
	delete(q.waiting, name)
	delete(q.dialling, name)
	delete(q.callers, name)
}

// wait has a process dialled. The caller holds c.mu.
func (c *census) wait(m *memberlist.Node) {
	told := *m // memberlist goes on changing the node
	told.Addr, told.Meta = slices.Clone(m.Addr), slices.Clone(m.Meta)
	c.queue.add(told)
	c.more.Wake()
}

// called notes that a process has opened a stream to this member, by its own word.
func (c *census) called(p member.Process) {
	name := gossipName(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, proven := c.proven[name]; !proven {
		c.queue.called(name)
		c.more.Wake()
	}
}

// next returns a process to be dialled now. The process stays in the queue until drop.
func (c *census) next() (memberlist.Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.next()
}

// drop takes a process off the queue.
func (c *census) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.remove(name)
}
