package locks

import (
	"context"
	"sync"
	"testing"

	"github.com/wardmote/wardmote/fence"
)

// shardMap is the work of all callers. shardMap checks that no shard has two works
// at a time and that tokens rise.
type shardMap struct {
	t      *testing.T
	mu     sync.Mutex
	owner  map[int]string
	tokens map[int]fence.Token
	starts int
	last   map[int]string // the latest owner of each shard
	moved  int            // starts at another client than the owner before
}

func newShardMap(t *testing.T) *shardMap {
	return &shardMap{t: t, owner: make(map[int]string), last: make(map[int]string), tokens: make(map[int]fence.Token)}
}

func (s *shardMap) begin(name string, shard int, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by := s.owner[shard]; by != "" {
		s.t.Errorf("shard %d is %s's and %s's", shard, by, name)
	}
	if l.Token() <= s.tokens[shard] {
		s.t.Errorf("shard %d: token %d after %d", shard, l.Token(), s.tokens[shard])
	}
	s.owner[shard], s.tokens[shard] = name, l.Token()
	s.starts++
	if last := s.last[shard]; last != "" && last != name {
		s.moved++
	}
	s.last[shard] = name
}

func (s *shardMap) end(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owner, shard)
}

// work runs until its context ends.
func (s *shardMap) work(name string) ShardWork {
	return func(ctx context.Context, shard int, l *Lock) error {
		s.begin(name, shard, l)
		defer s.end(shard)
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// count checks the number of starts since the last count.
func (s *shardMap) count(t *testing.T, what string, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts != want {
		t.Errorf("%s: %d works began, want %d", what, s.starts, want)
	}
	s.starts, s.moved = 0, 0
}

// ownsN checks the number of shards of a client.
func (s *shardMap) ownsN(t *testing.T, name string, want int) {
	t.Helper()
	if got := s.sizes()[name]; got != want {
		t.Errorf("%s owns %d shards, want %d", name, got, want)
	}
}

// sizes counts shards by owner.
func (s *shardMap) sizes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := make(map[string]int)
	for _, name := range s.owner {
		sizes[name]++
	}
	return sizes
}

func (s *shardMap) balanced(t *testing.T, shards int, names ...string) {
	t.Helper()
	sizes := s.sizes()
	sum := 0
	for _, name := range names {
		n := sizes[name]
		sum += n
		if n < shards/len(names) || n > (shards+len(names)-1)/len(names) {
			t.Errorf("unbalanced: %v", sizes)
		}
	}
	if sum != shards || len(sizes) > len(names) {
		t.Errorf("%v do not make %d shards of %v", sizes, shards, names)
	}
}

// A caller is a call of Spread that the test ends.
type caller struct {
	c     *Client
	m     *member
	leave context.CancelFunc
	ended *call[struct{}]
}

// spread calls Spread on a new client until the test ends.
func (w *world) spread(t *testing.T, name, group string, shards int, work ShardWork, opts ...SpreadOption) *caller {
	t.Helper()
	c, m := w.client(t, name)
	return spreadOn(t, c, m, group, shards, work, opts...)
}

func spreadOn(t *testing.T, c *Client, m *member, group string, shards int, work ShardWork, opts ...SpreadOption) *caller {
	ctx, cancel := context.WithCancel(bg)
	t.Cleanup(cancel)
	return &caller{c, m, cancel, does(func(ctx context.Context) error { return c.Spread(ctx, group, shards, work, opts...) }, ctx)}
}
