package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// Report returns what this member knows by itself. Report asks nobody, waits for no
// leader, no disk and no other member, and takes a fraction of a millisecond. It also
// answers after the node has ended.
func (n *Node) Report() Report {
	defer n.self.Clock.Enter()()
	now := time.Now()
	r := Report{
		At:      now,
		Own:     n.ownReport(now),
		Config:  n.configReport(),
		Leader:  n.leaderReport(now),
		Raft:    n.raftReport(now),
		Health:  n.healthReport(now),
		Summary: n.summary(now),
		Members: n.memberReports(now),
		Events:  n.history.list(),
		Streams: []StreamsReport{},
	}
	r.Join.Progress = n.joinProgress()
	return r
}

// since returns the age of a moment, 0 for the zero time.
func since(now, at time.Time) Duration {
	if at.IsZero() {
		return 0
	}
	return Duration(max(0, now.Sub(at)))
}

func (n *Node) ownReport(now time.Time) OwnReport {
	own := OwnReport{
		Name: n.self.Name, Addr: n.self.Addr, Boot: n.self.Boot, Cluster: n.self.Cluster, Role: n.role(),
		Started: n.started, Up: since(now, n.started), Leaving: n.leaving(), Version: programVersion(),
	}
	if v := n.founding.Value(); v != nil {
		own.ClusterID = hex.EncodeToString(v.Cluster[:])
	}
	if n.ctx.Err() != nil {
		own.Ended = context.Cause(n.ctx).Error()
	}
	return own
}

// role returns "leader", "voter" or "thin".
func (n *Node) role() string {
	switch r := n.seat.Current(); {
	case r == nil || !r.Votes():
		return "thin"
	case n.leading.Load() != nil:
		return "leader"
	}
	return "voter"
}

const modulePath = "github.com/wardmote/wardmote"

// programVersion says which program runs.
var programVersion = sync.OnceValue(func() VersionReport {
	v := VersionReport{
		Module: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Protocol: member.ProtocolVersion, Format: machine.MaxFormat,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" {
			v.Module = m.Version
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
})

func (n *Node) configReport() ConfigReport {
	cfg, s := &n.cfg, &n.cfg.Security
	r := ConfigReport{
		Bind: cfg.Bind, Advertise: cfg.Advertise, Join: slices.Clone(cfg.Join), Resolver: cfg.Resolver != nil,
		Founders: slices.Clone(cfg.Founders), InitialSize: cfg.InitialSize, TTL: Duration(cfg.TTL), Dir: cfg.Dir,
		Secrets: len(s.Secrets), TLS: s.TLS != nil, Identity: s.Identity != nil, Authorize: s.Authorize != nil, Insecure: s.Insecure,
		Voters: cfg.Voting.Voters, Thin: cfg.Voting.Thin, Zone: cfg.Voting.Zone,
		JoinIsComplete: cfg.Recovery.JoinIsComplete, AssumeGone: Duration(cfg.Recovery.AssumeGone), TokenFloor: cfg.Recovery.TokenFloor != nil,
	}
	if n.keyring != nil {
		ids := n.keyring.IDs()
		r.Secrets = len(ids)
		for _, id := range ids {
			r.SecretIDs = append(r.SecretIDs, hex.EncodeToString(id[:]))
		}
	}
	return r
}

func (n *Node) joinProgress() string {
	if n.founding.Value() != nil {
		return ""
	}
	return n.founding.Progress()
}

func (n *Node) leaderReport(now time.Time) LeaderReport {
	name, addr, ok := n.link.Leader()
	return LeaderReport{
		Reached: ok, Name: name, Addr: addr, Self: ok && name == n.self.Name && addr == n.self.Addr,
		Term: n.link.Term(), Bound: Duration(n.link.TTL()),
	}
}

func (n *Node) raftReport(now time.Time) *RaftReport {
	r := n.seat.Current()
	if r == nil {
		return nil
	}
	st := r.Status()
	out := &RaftReport{
		ID: r.ID(), State: st.State, Votes: r.Votes(), Voters: r.Voters(), Term: st.Term, Leader: st.Leader,
		Last: st.Last, Commit: st.Commit, Applied: st.Applied, Snapshot: st.Snapshot,
		Lag: max(st.Commit, st.Applied) - st.Applied, Contact: st.Contact, ContactAge: since(now, st.Contact),
		Elections: n.elections.Load(),
		Store:     StoreReport{Durable: n.cfg.Dir != "", Stalled: Duration(st.Stalled)},
	}
	if st.Failed != nil {
		out.Store.Failed = st.Failed.Error()
	}
	return out
}

func (n *Node) healthReport(now time.Time) HealthReport {
	_, _, led := n.link.Leader()
	return HealthReport{Health: n.healthOf(led)}
}

// local implements replica.Replica's Local.
func (n *Node) local(f func(*machine.State)) (replica.Copy, bool) {
	r := n.seat.Current()
	if r == nil {
		return replica.Copy{}, false
	}
	c := n.copyOf(r) // before the reading: the table has at least these entries
	r.Table().(*term.Table).View(f)
	return c, true
}

func (n *Node) copyOf(r *consensus.Raft) replica.Copy {
	c := replica.Copy{Index: r.Applied(), Current: r.Current()}
	if t := n.currentTerm(); t != nil {
		c.Times = t
	}
	return c
}

func (n *Node) summary(now time.Time) *Summary {
	var s Summary
	c, ok := n.local(func(m *machine.State) {
		t := m.Summary()
		s = Summary{
			Granting: m.Lifted(), Keys: t.Keys, Grants: t.Grants, Waits: t.Waits, Sessions: t.Sessions,
			Groups: t.Groups, Shards: t.Shards, Values: t.Values,
		}
	})
	if !ok {
		return nil
	}
	s.Source, s.Index, s.At, s.Age = "table", c.Index, c.Current, since(now, c.Current)
	return &s
}

func (n *Node) memberReports(now time.Time) []MemberReport {
	leader, leaderAddr, attached := n.link.Leader()
	set, told := n.voterSet()
	own := n.founding.Cluster()
	all := n.gossip.All()
	out := []MemberReport{}
	for _, s := range all {
		m := MemberReport{
			Name: s.Name, Addr: s.Addr, Boot: s.Boot, Self: n.self.Is(s.Process),
			Leader: attached && s.Name == leader && s.Addr == leaderAddr,
			Voter:  s.Meta.Voter, Thin: s.Meta.Thin, Zone: s.Meta.Zone, Since: s.Since, Alive: s.Alive,
			Leaving: s.Meta.Leaving, Durable: s.Meta.Durable, Format: s.Meta.ReadsFormat(),
			TTL: Duration(time.Duration(s.Meta.TTL) * time.Millisecond), Foreign: s.Meta.Cluster != own,
		}
		if told {
			id := member.RaftID(s.Name, s.Meta.Generation)
			i := slices.IndexFunc(set.Voters, func(v wire.VoterState) bool { return v.Raft == id })
			if m.Voter = i >= 0; m.Voter {
				m.Reached, m.Current = set.Voters[i].Reached, set.Voters[i].Current
			}
		}
		switch {
		case m.Self:
			m.Reach = "self"
		case n.proof.Ended(s.Name, s.Boot):
			m.Reach = "ended"
		case s.Alive:
			m.Reach = "seen"
		default:
			m.Reach = "lost"
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b MemberReport) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot))
	})
	return out
}

// eventHistory keeps the latest events for reports.
type eventHistory struct {
	mu   sync.Mutex
	ring []EventReport
	next int // the place of the oldest, once the ring is full
}

const maxHistory = 128

func (p *eventHistory) add(e Event) {
	r := EventReport{
		At: time.Now(), Kind: e.Kind.String(), Member: e.Member.Name, Addr: e.Member.Addr, Term: e.Term,
		Detail: e.Detail, Next: e.Next,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < maxHistory {
		p.ring = append(p.ring, r)
		return
	}
	p.ring[p.next] = r
	p.next = (p.next + 1) % maxHistory
}

// list returns the events, the oldest first.
func (p *eventHistory) list() []EventReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]EventReport, 0, len(p.ring))
	out = append(out, p.ring[p.next:]...)
	return append(out, p.ring[:p.next]...)
}
