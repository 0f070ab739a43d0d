package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// addresses lists the addresses at which members may be: the addresses of Join,
// and the addresses known to an earlier process of this member. Names are
// resolved anew when their last look-up is older than timing.Resolved. One
// goroutine at a time may call list; the other methods may be called from any
// goroutine.
type addresses struct {
	cfg    Config
	lookup func(ctx context.Context, entry string) ([]string, error)
	joins  int // addresses of Join at the front of the last list, at most maxFirst

	mu      sync.Mutex
	known   map[string]resolution // by the name's entry of Join
	answers map[string]string     // the trouble at the last try, by address; "" for a joined address
	tries   map[string]tries      // by the same addresses
}

// resolution is the result of the last look-up of a name. A failed look-up counts
// too: found is then a part of the addresses, or empty.
type resolution struct {
	found []string
	err   error
	at    time.Time
	sound []answer // the complete answers of the last 2*timing.ListComplete, oldest first
}

// answer is a complete answer to a look-up.
type answer struct {
	found []string
	at    time.Time
}

func newAddresses(cfg Config) *addresses {
	return &addresses{
		cfg: cfg, lookup: Lookup{User: cfg.Resolver}.Addresses,
		known: make(map[string]resolution), answers: make(map[string]string), tries: make(map[string]tries),
	}
}

// isName reports whether an entry of Join must be looked up.
func isName(entry string) bool {
	host, _, err := net.SplitHostPort(entry)
	return err != nil || net.ParseIP(host) == nil
}

// own reports whether addr is this member's own address, as advertised or as bound.
func (a *addresses) own(addr string) bool {
	return addr == a.cfg.Self.Addr || addr == a.cfg.Port.Addr()
}

// list returns each address once, this node's own left out: first Join, in
// order, then the peers. It blocks while names are resolved, for timing.Resolve
// at most each.
func (a *addresses) list(ctx context.Context) []string {
	var out []string
	listed := make(map[string]bool)
	add := func(addr string) {
		if !a.own(addr) && !listed[addr] {
			listed[addr] = true
			out = append(out, addr)
		}
	}
	for _, entry := range a.cfg.Join {
		if !isName(entry) {
			add(entry)
			continue
		}
		for _, addr := range a.resolve(ctx, entry) {
			add(addr)
		}
	}
	a.joins = min(len(out), maxFirst)
	for _, addr := range a.cfg.Peers() {
		add(addr)
	}
	a.mu.Lock()
	maps.DeleteFunc(a.answers, func(addr, _ string) bool { return !listed[addr] })
	maps.DeleteFunc(a.tries, func(addr string, _ tries) bool { return !listed[addr] })
	a.mu.Unlock()
	return out
}

// resolve returns the addresses behind a name, by a look-up or from memory.
func (a *addresses) resolve(ctx context.Context, entry string) []string {
	a.mu.Lock()
	known, ok := a.known[entry]
	a.mu.Unlock()
	if ok && time.Since(known.at) <= timing.Resolved {
		return known.found
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Resolve)
	defer cancel()
	found, err := a.lookup(ctx, entry)
	now := time.Now()
	if err != nil {
		a.cfg.Self.Log.Debug("join address not resolved", "address", entry, "error", err)
	} else if slices.ContainsFunc(found, a.own) {
		known.sound = append(known.sound, answer{found, now})
	}
	for len(known.sound) > 0 && now.Sub(known.sound[0].at) > 2*timing.ListComplete {
		known.sound = known.sound[1:]
	}
	known.found, known.err, known.at = found, err, now
	a.mu.Lock()
	a.known[entry] = known
	a.mu.Unlock()
	return found
}

// refusal is implemented by an error of Port.Dial if a member has answered at the
// address: foreign says that the member is of another cluster.
type refusal interface {
	Refusal() (foreign bool, why string)
}

// errUnread is the failure of an exchange with a member that has answered the dial.
type errUnread struct{ error }

// tried records the result of a try of an address.
func (a *addresses) tried(addr string, err error) {
	text := ""
	var refused refusal
	var unread errUnread
	var shake *net.OpError
	switch {
	case err == nil:
	case errors.As(err, &refused):
		foreign, why := refused.Refusal()
		text = "refuses this member: " + why
		if foreign {
			text = "answers as another cluster" + why
		}
	case errors.As(err, &unread):
		text = "answers, but its gossip cannot be read: are Security.Secrets the same?"
	case errors.As(err, &shake) && (shake.Op == "remote error" || shake.Op == "local error"): // an alert of TLS
		text = "answers, but TLS fails (" + rootText(err) + "): is Security the same?"
	default:
		text = "does not answer: " + rootText(err)
	}
	a.mu.Lock()
	a.answers[addr] = text
	a.tries[addr] = tries{a.tries[addr].n + 1, time.Now()}
	a.mu.Unlock()
}

// rootText returns the innermost error's text: the outer ones repeat the address.
// The end of a try is no end of the reader's context.
func rootText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "timeout"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err // the whole text names a server, which may be another one next time
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// trouble returns one line for each name of Join, and for each address of the last
// list at which no member has joined this member, in the order of Join.
func (a *addresses) trouble() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	told := make(map[string]bool)
	tell := func(addr string) {
		if text := a.answers[addr]; text != "" && !told[addr] {
			out = append(out, addr+" "+text)
		}
		told[addr] = true
	}
	for _, entry := range a.cfg.Join {
		if !isName(entry) {
			tell(entry)
			continue
		}
		known, ok := a.known[entry]
		if !ok || told[entry] {
			continue
		}
		told[entry] = true
		out = append(out, entry+" "+known.String())
		for _, addr := range known.found {
			tell(addr)
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(a.answers)) {
		tell(addr)
	}
	return out
}

// String says what a name resolves to.
func (r resolution) String() string {
	switch {
	case len(r.found) == 0 && r.err == nil:
		return "resolves to nothing"
	case len(r.found) == 0:
		return "does not resolve: " + rootText(r.err)
	}
	const most = 8
	text := "resolves to " + strings.Join(r.found[:min(len(r.found), most)], ", ")
	if more := len(r.found) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if r.err != nil {
		text += ", and in part to nothing: " + rootText(r.err)
	}
	return text
}

// complete returns all addresses of Join, this member's own included, if the list
// can be believed to be complete, and else the reason why not.
//
// A name's answer can be partial for a while: a resolver may hold an old copy, and a
// service may list a member some seconds after its start. So a name counts once
// three answers over timing.ListComplete were without an error, not empty and had
// this member's own address; the list is then the union of those answers. IP
// addresses count at once. This member's own address must be in the list: otherwise
// the list leaves a living member out, this one, and so may leave out others.
func (a *addresses) complete() (addrs []string, ok bool, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	add := func(addr string) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	for _, entry := range a.cfg.Join {
		if !isName(entry) {
			add(entry)
			continue
		}
		known := a.known[entry]
		n := len(known.sound)
		switch {
		case n == 0 && known.err == nil && len(known.found) > 0:
			return nil, false, fmt.Sprintf("%s %s, without this member's own address %s", entry, known, a.cfg.Self.Addr)
		case n == 0 && known.at.IsZero():
			return nil, false, entry + " has not been looked up yet"
		case n == 0:
			return nil, false, fmt.Sprintf("%s %s", entry, known)
		case now.Sub(known.sound[n-1].at) > timing.ListComplete:
			return nil, false, fmt.Sprintf("%s had no complete answer for %v: it %s", entry, now.Sub(known.sound[n-1].at).Round(time.Second), known)
		case n < 3 || known.sound[n-1].at.Sub(known.sound[0].at) < timing.ListComplete:
			return nil, false, fmt.Sprintf("%s must be answered three times over %v: %d times over %v so far", entry,
				timing.ListComplete, n, known.sound[n-1].at.Sub(known.sound[0].at).Round(time.Second))
		}
		for _, s := range known.sound {
			for _, addr := range s.found {
				add(addr)
			}
		}
	}
	if !slices.ContainsFunc(addrs, a.own) {
		return nil, false, fmt.Sprintf("Join does not list this member's own address %s", a.cfg.Self.Addr)
	}
	return addrs, true, ""
}
