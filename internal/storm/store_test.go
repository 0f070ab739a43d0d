//go:build linux

package storm

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
)

// The resources live in the driver, beyond all faults, and members reach them over a
// socket of the host, beyond all cuts of the network.
//
// Each resource is a set, to be read, changed and written back as a whole, and a counter,
// the size of the set. In place of the whole set a write names the last element of the set
// as read, its base, and the new element. The resource remembers the base of each element,
// so the set of any state is a chain. A write on any other base than the latest state
// forgets the elements between: these updates are lost.
//
// There are three copies of each resource. The fenced copy checks the token of each access
// by a fence.Guard; the checked copy has no guard, but writers ask Err just before they
// write; the plain copy has neither.

// request is an access to a resource.
type request struct {
	Do       string // claim, read, write
	Resource string
	Process  string
	Token    uint64
	Copy     string // "" is the fenced one; checked, plain
	Base     string // write: the state that was read
	Value    string // write: the new element
}

// answer is the answer to a request.
type answer struct {
	State string // read: the last element
	Size  int    // read: of the set
	Error string // refused
}

// errRefused is the fence's refusal, as a member sees it.
var errRefused = errors.New("refused by the fence")

// storeClient is a member's way to the resources.
type storeClient struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func dialStore(path string) (*storeClient, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &storeClient{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
}

func (s *storeClient) Close() { _ = s.conn.Close() }

func (s *storeClient) ask(r request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var a answer
	err := s.out.Encode(r)
	if err == nil {
		err = s.in.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errRefused
	}
	return a, err
}

// store has the resources.
type store struct {
	listener net.Listener
	serving  sync.WaitGroup
	rec      *history.Recorder

	mu        sync.Mutex
	conns     map[net.Conn]bool
	resources map[string]*resource
	n         int64
	lastUser  map[string]string // the process that claimed a resource last
}

// resource is one copy of a resource.
type resource struct {
	guard   fence.Guard
	head    string
	base    map[string]string // of each element: what it was added to
	size    map[string]int    // of the set that ends in the element
	writes  int               // that were taken
	lost    int               // updates
	refused int
	forgets []forgotten
}

// forgotten is a write that lost updates.
type forgotten struct {
	At      int64
	Process string
	Lost    int
}

// newStore serves the resources at a socket. rec has the fenced accesses.
func newStore(path string, rec *history.Recorder) (*store, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &store{
		listener: l, rec: rec, conns: make(map[net.Conn]bool),
		resources: make(map[string]*resource), lastUser: make(map[string]string),
	}
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.serving.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

// Close ends the service.
func (s *store) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *store) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	lines, out := bufio.NewScanner(conn), json.NewEncoder(conn)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil || out.Encode(s.access(r)) != nil {
			return
		}
	}
}

// access carries out a request. The mutex makes the order of the recording the order in
// which the guards saw the tokens.
func (s *store) access(r request) (a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.Copy + " " + r.Resource
	x := s.resources[name]
	if x == nil {
		x = &resource{base: make(map[string]string), size: make(map[string]int)}
		s.resources[name] = x
	}
	do := func() error {
		switch r.Do {
		case "read":
			a.State, a.Size = x.head, x.size[x.head]
		case "write":
			x.write(r, s.rec.Now())
		case "claim":
			s.lastUser[r.Resource] = r.Process
		}
		return nil
	}
	if r.Copy != "" {
		_ = do()
		return a
	}
	err := x.guard.Do(fence.Token(r.Token), do)
	s.n++
	s.rec.Write(history.Write{Resource: r.Resource, N: s.n, At: s.rec.Now(), Process: r.Process, Token: r.Token, OK: err == nil})
	if err != nil {
		x.refused++
		a.Error = err.Error()
	}
	return a
}

// write takes a write, and counts the lost updates: all between the base of the write and
// the latest state.
func (x *resource) write(r request, at int64) {
	if gone := x.size[x.head] - x.common(r.Base); gone > 0 {
		x.lost += gone
		x.forgets = append(x.forgets, forgotten{at, r.Process, gone})
	}
	x.writes++
	x.base[r.Value] = r.Base
	x.size[r.Value] = x.size[r.Base] + 1
	x.head = r.Value
}

// common returns the size of the largest common part of the latest state and of the state
// with the last element base.
func (x *resource) common(base string) int {
	a, b := x.head, base
	for a != b {
		if x.size[a] >= x.size[b] {
			a = x.base[a]
		} else {
			b = x.base[b]
		}
	}
	return x.size[a]
}

// counts are the sums over all resources of a kind of copy.
type counts struct {
	Writes  int `json:"writes"`
	Lost    int `json:"lost"`
	Refused int `json:"refused,omitempty"`
}

// sum returns the counts of a copy, and its forgetful writes.
func (s *store) sum(copied string) (c counts, forgets []forgotten) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, x := range s.resources {
		if !strings.HasPrefix(name, copied+" ") {
			continue
		}
		c.Writes += x.writes
		c.Lost += x.lost
		c.Refused += x.refused
		forgets = append(forgets, x.forgets...)
	}
	return c, forgets
}

// user returns the last process to claim a resource.
func (s *store) user(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUser[name]
}
