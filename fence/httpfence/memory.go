package httpfence

import (
	"context"
	"fmt"
	"sync"

	"github.com/wardmote/wardmote/fence"
)

// Memory keeps the marks of many resources in the process, and forgets them with the
// process. Memory never drops a mark while the process lives, because a dropped mark would
// admit a former holder. So the number of resources has a limit, and further resources
// are refused with a *FullError.
type Memory struct {
	most int

	mu    sync.Mutex
	marks map[string]*mark
}

// FullError refuses a request for a new resource because Memory is full. The request was
// not served.
type FullError struct {
	Limit int // the number of resources with marks
}

func (e *FullError) Error() string {
	return fmt.Sprintf("httpfence: marks of %d resources are kept, and no more", e.Limit)
}

// NewMemory returns a Memory for at most so many resources, and for one if most is below
// 1. A resource takes about 200 bytes and the length of its name.
func NewMemory(most int) *Memory {
	return &Memory{most: max(most, 1), marks: make(map[string]*mark)}
}

// Guard returns the guard of a resource, for Require.
func (m *Memory) Guard(resource string) Guard { return &inMemory{m, resource} }

// Len returns the number of resources with a mark.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.marks)
}

type inMemory struct {
	memory   *Memory
	resource string
}

// Do implements Guard. The mark rises before the wait for lower requests, so that no
// further lower request is admitted during the wait.
func (g *inMemory) Do(ctx context.Context, t fence.Token, serve func() error) error {
	if t == 0 {
		return fence.ErrUnfenced
	}
	k, err := g.memory.mark(g.resource)
	if err != nil {
		return err
	}
	if err := k.enter(ctx, t); err != nil {
		return err
	}
	defer k.leave()
	return serve()
}

func (m *Memory) mark(resource string) (*mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.marks[resource]
	if k == nil {
		if len(m.marks) >= m.most {
			return nil, &FullError{m.most}
		}
		k = &mark{}
		m.marks[resource] = k
	}
	return k, nil
}

// A mark is the highest token shown, with the requests served now and the waiting ones.
type mark struct {
	mu      sync.Mutex
	token   fence.Token
	serving fence.Token   // of the requests being served; 0: none are
	served  int           // their number
	idle    chan struct{} // closed when the last of them ends; nil if nobody waits
}

// enter waits until no request of a lower token is served.
func (k *mark) enter(ctx context.Context, t fence.Token) error {
	for {
		k.mu.Lock()
		if t < k.token { // perhaps since the last look
			seen := k.token
			k.mu.Unlock()
			return &fence.StaleError{Token: t, Seen: seen}
		}
		k.token = t
		if k.served == 0 || k.serving == t {
			k.serving = t
			k.served++
			k.mu.Unlock()
			return nil
		}
		if k.idle == nil {
			k.idle = make(chan struct{})
		}
		idle := k.idle
		k.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (k *mark) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served--
	if k.served == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// Durable makes a Guard of a fence.Guard or a fence.File. Such a Guard serves one request
// at a time. If the ctx of a waiting request ends, the request is refused when its turn
// comes, with ctx's error.
func Durable(g interface {
	Do(t fence.Token, write func() error) error
}) Guard {
	return durable{g.Do}
}

type durable struct {
	do func(t fence.Token, write func() error) error
}

func (g durable) Do(ctx context.Context, t fence.Token, serve func() error) error {
	return g.do(t, func() error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return serve()
	})
}
