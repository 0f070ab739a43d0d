package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// memberEnv holds a member's settings, as JSON. With the variable set, the test
// binary is a member's program.
const memberEnv = "WARDMOTE_ATTACK_MEMBER"

func TestMain(m *testing.M) {
	text := os.Getenv(memberEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := runMember(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings configure a member.
type settings struct {
	Name, Bind, Advertise, Dir string
	Join                       []string
	InitialSize                int
	TTL                        time.Duration
	Secrets                    [][]byte
	CA, Cert, Key              []byte // PEM; empty: no TLS
	Insecure                   bool
	Shared                     bool // the certificate is that of all members, and names none
}

func (s settings) config() (cluster.Config, error) {
	cfg := cluster.Config{
		Name: s.Name, Cluster: clusterName, Bind: s.Bind, Advertise: s.Advertise, Dir: s.Dir, Join: s.Join,
		InitialSize: s.InitialSize, TTL: s.TTL,
		Security: cluster.Security{Secrets: s.Secrets, Insecure: s.Insecure},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if len(s.Cert) > 0 {
		cert, err := tls.X509KeyPair(s.Cert, s.Key)
		if err != nil {
			return cfg, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.CA)
		cfg.Security.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool}
		if s.Shared {
			cfg.Security.Identity = sharedIdentity
		}
	}
	return cfg, nil
}

// sharedIdentity reads the role of a certificate that many processes have, and no name.
func sharedIdentity(cert *x509.Certificate) (string, cluster.Role, error) {
	if len(cert.URIs) == 1 && cert.URIs[0].Query().Get("role") == "member" {
		return "", cluster.RoleMember, nil
	}
	return "", cluster.RoleVoter, nil
}

// command is a line to a member.
type command struct {
	ID      int
	Do      string // see obey
	Key     string
	Wait    time.Duration // the longest time for the answer
	Secrets [][]byte
}

// report is a line from a member: an answer, or news if ID is 0.
type report struct {
	ID     int
	Error  string
	Key    string
	Token  uint64
	Leader string
	Term   uint64          // of the leader named Key, with the news leader
	Took   []time.Duration // of the pairs of acquire and release under load, or the longest stall
	News   string          // lost, leader
	Detail string
}

// A program is a running member.
type program struct {
	node   *cluster.Node
	client *locks.Client
	stalls *testrounds.Stalls

	mu    sync.Mutex
	out   *json.Encoder
	locks map[string]*locks.Lock
}

// runMember is the member's program. It ends with its input, without farewell: tests
// kill members, or end the input.
func runMember(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	p := &program{out: json.NewEncoder(os.Stdout), locks: make(map[string]*locks.Lock), stalls: testrounds.WatchStalls(nil)}
	defer p.stalls.Stop()
	cfg, err := s.config()
	if err != nil {
		return err
	}
	cfg.Events = func(_ context.Context, e cluster.Event) {
		if e.Kind == cluster.LeaderChanged {
			p.tell(report{News: "leader", Key: e.Member.Name, Term: e.Term})
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.node, err = cluster.Start(ctx, cfg); err != nil {
		return err
	}
	p.client = locks.New(p.node, locks.Options{})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if json.Unmarshal(lines.Bytes(), &c) == nil {
			go p.obey(ctx, c)
		}
	}
	return p.node.Stop()
}

func (p *program) tell(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // without a reader the program ends soon
}

// obey carries out a command and tells the result.
func (p *program) obey(ctx context.Context, c command) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	r := report{ID: c.ID, Key: c.Key}
	var err error
	switch c.Do {
	case "ready":
		err = p.node.Ready(ctx)
	case "leader":
		h := p.node.Health(ctx)
		r.Leader, err = h.Leader, h.Err
		if err == nil && !h.Quorum {
			err = errors.New("no quorum")
		}
	case "voters":
		n := 0
		for _, m := range p.node.Members() {
			if m.Voter {
				n++
			}
		}
		r.Token = uint64(n)
	case "members":
		r.Token = uint64(len(p.node.Members()))
	case "acquire":
		r.Token, err = p.acquire(ctx, c.Key)
	case "try": // is the key free? It is free again afterwards
		var l *locks.Lock
		if l, err = p.client.TryAcquire(ctx, c.Key); err == nil {
			r.Token = uint64(l.Token())
			err = l.Release(ctx)
		}
	case "release":
		p.mu.Lock()
		l := p.locks[c.Key]
		delete(p.locks, c.Key)
		p.mu.Unlock()
		if l == nil {
			err = errors.New("not held")
		} else {
			err = l.Release(ctx)
		}
	case "stalls": // since Key, in Unix nanoseconds
		var since int64
		since, err = strconv.ParseInt(c.Key, 10, 64)
		r.Took = []time.Duration{p.stalls.Since(time.Unix(0, since))}
	case "load":
		r.Took, err = p.load(ctx, c.Key)
	case "secrets":
		err = errors.ErrUnsupported
		if n, ok := any(p.node).(interface{ SetSecrets(...[]byte) error }); ok {
			err = n.SetSecrets(c.Secrets...)
		}
	default:
		err = fmt.Errorf("unknown command %q", c.Do)
	}
	if err != nil {
		r.Error = err.Error()
	}
	if errors.Is(err, locks.ErrHeld) {
		r.Detail = "held"
	}
	p.tell(r)
}

// load acquires and releases a key until ctx ends, and returns the time of each pair.
func (p *program) load(ctx context.Context, key string) (took []time.Duration, err error) {
	for {
		began := time.Now()
		l, err := p.client.Acquire(ctx, key)
		if err == nil {
			err = l.Release(ctx)
		}
		if ctx.Err() != nil {
			return took, nil
		}
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
}

// acquire acquires a key until ctx ends, and asks anew if the session has ended during
// the wait, as ErrSessionLost advises.
func (p *program) acquire(ctx context.Context, key string) (uint64, error) {
	l, err := p.client.Acquire(ctx, key)
	for errors.Is(err, locks.ErrSessionLost) && ctx.Err() == nil {
		l, err = p.client.Acquire(ctx, key)
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.locks[key] = l
	p.mu.Unlock()
	context.AfterFunc(l.Context(), func() {
		var lost *locks.LostError
		if errors.As(context.Cause(l.Context()), &lost) {
			p.tell(report{News: "lost", Key: key, Token: uint64(l.Token()), Detail: lost.Error()})
		}
	})
	return uint64(l.Token()), nil
}

// percentile returns the p-th percentile of took, which it sorts.
func percentile(took []time.Duration, p int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)-1)*p/100]
}
