package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Report returns what this member knows by itself. Report asks nobody, waits for no
// leader, no disk and no other member, and takes a fraction of a millisecond. It also
// answers after the node has ended.
func (n *Node) Report() Report {
	defer n.self.Clock.Enter()()
	now, l, p := time.Now(), n.link.Report(), n.port.Report()
	r := Report{
		At:      now,
		Own:     n.ownReport(now),
		Config:  n.configReport(),
		Leader:  n.leaderReport(now, l),
		Raft:    n.raftReport(now),
		Health:  n.healthReport(now, l),
		Summary: n.summary(now, l),
		Members: n.memberReports(now, l, p),
		Events:  n.history.list(),
		Join:    n.joinReport(now),
		Streams: n.streamsReport(p),
	}
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

// release is the version of the module as other members are told: printable letters, and
// not more than they take.
func release() string {
	v := strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return -1
		}
		return c
	}, programVersion().Module)
	return v[:min(len(v), member.MaxRelease)]
}

func (n *Node) configReport() ConfigReport {
	cfg, s := &n.cfg, &n.cfg.Security
	r := ConfigReport{
		Bind: cfg.Bind, Advertise: cfg.Advertise, Join: slices.Clone(cfg.Join), Resolver: cfg.Resolver != nil,
		Founders: slices.Clone(cfg.Founders), InitialSize: cfg.InitialSize, TTL: Duration(cfg.TTL), Dir: cfg.Dir,
		Secrets: len(s.Secrets), TLS: s.TLS != nil, Identity: s.Identity != nil, Authorize: s.Authorize != nil, Insecure: s.Insecure,
		Voters: cfg.Voting.Voters, Thin: cfg.Voting.Thin, Zone: cfg.Voting.Zone,
		JoinIsComplete: cfg.Recovery.JoinIsComplete, AssumeGone: Duration(cfg.Recovery.AssumeGone), TokenFloor: cfg.Recovery.TokenFloor != nil,
	}
	if cfg.Dir != "" {
		r.Sync, r.Log = cfg.Voting.Sync.String(), cfg.Voting.Log.String()
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

func (n *Node) joinReport(now time.Time) (r JoinReport) {
	if n.founding.Value() == nil {
		r.Progress = n.founding.Progress()
	}
	g := n.gossip.Report()
	for _, name := range g.Names {
		l := LookupReport{Entry: name.Entry, Found: name.Found, At: name.At, Age: since(now, name.At)}
		if name.Err != nil {
			l.Error = name.Err.Error()
		}
		r.Names = append(r.Names, l)
	}
	for _, try := range g.Tries {
		r.Tries = append(r.Tries, TryReport{
			Addr: try.Addr, Joined: try.Answer == "", Answer: try.Answer, At: try.At, Age: since(now, try.At), Tries: try.Tries,
		})
	}
	return r
}

var kindNames = []struct {
	kind port.Kind
	name string
}{
	{port.KindRaft, "raft"}, {port.KindGossip, "gossip"}, {port.KindMember, "member"}, {port.KindControl, "control"},
	{port.KindPackets, "packets"}, {port.KindRelay, "relay"},
}

func (n *Node) streamsReport(p port.Report) []StreamsReport {
	out := []StreamsReport{}
	for _, k := range kindNames {
		if s := p.Streams[k.kind]; s != (port.Streams{}) {
			out = append(out, StreamsReport{Kind: k.name, Dialled: s.Dialled, Accepted: s.Accepted})
		}
	}
	return out
}

func quantiles(q timing.Quantiles) Quantiles {
	return Quantiles{Count: q.Count, P50: Duration(q.P50), P90: Duration(q.P90), P99: Duration(q.P99), Max: Duration(q.Max)}
}

func (n *Node) leaderReport(now time.Time, l link.Report) LeaderReport {
	return LeaderReport{
		Reached: l.Reached, Name: l.Name, Addr: l.Addr, Self: l.Reached && l.Name == n.self.Name && l.Addr == n.self.Addr,
		Via: l.Via, Term: l.Term, Since: l.Since, For: since(now, l.Since), Bound: Duration(n.link.TTL()),
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
		Commits:   quantiles(st.Commits),
		Store:     StoreReport{Durable: n.cfg.Dir != "", Writes: quantiles(st.Writes), Stalled: Duration(st.Stalled)},
	}
	if t := n.currentTerm(); t != nil {
		out.Rounds = quantiles(t.Rounds())
	}
	if out.Voters == nil {
		out.Voters = []string{}
	}
	if st.Failed != nil {
		out.Store.Failed = st.Failed.Error()
	}
	return out
}

// healthReport makes a Health of the last answers of a leader.
func (n *Node) healthReport(now time.Time, l link.Report) HealthReport {
	quorum := l.Reached && !l.Confirmed.IsZero() && now.Sub(l.Confirmed) <= n.link.TTL()
	return HealthReport{Health: n.healthOf(quorum), Confirmed: l.Confirmed, Age: since(now, l.Confirmed)}
}

// keepConfirmed asks the leader for a summary whenever no answer to a beat had one for half
// a TTL, so that Report has a fresh word on a member without sessions too.
func (n *Node) keepConfirmed() {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	var least time.Duration // before the next question, after a failed one
	for n.ctx.Err() == nil {
		changed := n.link.Changed()
		n.tellClock(n.link.Report())
		again.Reset(max(least, n.confirmDue()))
		select {
		case <-changed:
		case <-n.ctx.Done():
		case <-again.C:
			if n.confirmDue() > timing.KeeperTick {
				continue // a beat was answered meanwhile
			}
			ctx, cancel := context.WithTimeout(n.ctx, n.link.TTL()/2)
			if least = 0; n.link.Summarize(ctx) != nil {
				least = n.link.TTL() / 2
			}
			cancel()
		}
	}
}

// confirmDue is how long keepConfirmed waits before it asks.
func (n *Node) confirmDue() time.Duration {
	l, pause := n.link.Report(), n.link.TTL()/2
	last := l.Told
	switch {
	case !l.Reached:
		return time.Hour // until a leader is reached
	case n.leading.Load() != nil:
		last = l.Confirmed
	}
	if last.Before(l.Since) {
		return 0
	}
	return max(timing.KeeperTick, time.Until(last.Add(pause)))
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

func (n *Node) summary(now time.Time, l link.Report) *Summary {
	var s Summary
	c, ok := n.local(func(m *machine.State) {
		t := m.Summary()
		s = Summary{
			Commands: t.Commands, Granting: m.Lifted(), Keys: t.Keys, Grants: t.Grants, Waits: t.Waits, Sessions: t.Sessions,
			Groups: t.Groups, Shards: t.Shards, Values: t.Values,
		}
	})
	if ok {
		s.Source, s.Index, s.At, s.Age = "table", c.Index, c.Current, since(now, c.Current)
		if t := n.currentTerm(); t != nil {
			s.Members = t.Members()
		}
		return &s
	}
	if l.Told.IsZero() {
		return nil
	}
	w := l.Summary
	return &Summary{
		Source: "leader", At: l.Told, Age: since(now, l.Told), Term: w.Term, Commands: w.Commands, Granting: w.Granting,
		Keys: int(w.Keys), Grants: int(w.Grants), Waits: int(w.Waits), Sessions: int(w.Sessions),
		Groups: int(w.Groups), Shards: int(w.Shards), Values: int(w.Values), Members: int(w.Members),
	}
}

// reachedWithin is how old the last message of a member may be that counts as reached.
const reachedWithin = 5 * time.Second

func (n *Node) memberReports(now time.Time, l link.Report, p port.Report) []MemberReport {
	set, told := n.voterSet()
	own := n.founding.Cluster()
	all := n.gossip.All()
	base, within, measured := n.leaderAhead(l)
	out := []MemberReport{}
	for _, s := range all {
		m := MemberReport{
			Name: s.Name, Addr: s.Addr, Boot: s.Boot, Self: n.self.Is(s.Process),
			Leader: l.Reached && s.Name == l.Name && s.Addr == l.Addr,
			Voter:  s.Meta.Voter, Thin: s.Meta.Thin, Zone: s.Meta.Zone, Since: s.Since, Alive: s.Alive,
			Leaving: s.Meta.Leaving, Durable: s.Meta.Durable, Format: s.Meta.ReadsFormat(), Version: s.Meta.Release,
			TTL: Duration(time.Duration(s.Meta.TTL) * time.Millisecond), Foreign: s.Meta.Cluster != own,
		}
		if told {
			id := member.RaftID(s.Name, s.Meta.Generation)
			i := slices.IndexFunc(set.Voters, func(v wire.VoterState) bool { return v.Raft == id })
			if m.Voter = i >= 0; m.Voter {
				m.Reached, m.Current = set.Voters[i].Reached, set.Voters[i].Current
			}
		}
		if !m.Self {
			m.Heard = p.Heard[port.Peer{Name: s.Name, Boot: s.Boot}]
			m.Age = since(now, m.Heard)
		}
		if measured && s.Alive && !m.Self && !m.Foreign {
			m.Clock, m.ClockError = new(base), within
			if !m.Leader {
				*m.Clock += Duration(toldAhead(s.Meta))
				m.ClockError += Duration(clockStep)
			}
		}
		switch {
		case m.Self:
			m.Reach = "self"
		case n.proof.Ended(s.Name, s.Boot):
			m.Reach = "ended"
		case !m.Heard.IsZero() && now.Sub(m.Heard) < reachedWithin:
			m.Reach = "reached"
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

// A member tells the others by gossip how far its wall clock is ahead of the leader's, and
// tells it anew after a change of clockStep. So everybody knows whose clock is off, and
// members with good clocks say nothing.
const (
	clockStep = 250 * time.Millisecond
	mostAhead = 100 * 365 * 24 * time.Hour // the difference of two clocks fits a Duration
)

// leaderAhead reads how far the leader's clock was ahead of this host's at the last summary,
// which the leader made between the question and its answer. Known is false if the present
// leader has not answered yet.
func (n *Node) leaderAhead(l link.Report) (ahead, within Duration, known bool) {
	switch {
	case n.leading.Load() != nil:
		return 0, 0, true
	case !l.Reached || l.Told.IsZero() || l.Told.Before(l.Since):
		return 0, 0, false
	}
	half := l.Told.Sub(l.Sent) / 2
	d := time.Unix(0, l.Summary.Clock).Sub(l.Wall.Add(-half))
	return Duration(max(-mostAhead, min(d, mostAhead))), Duration(half), true
}

// tellClock tells the others of this host's clock, if what they know is wrong by more than
// clockStep and the error of the reading.
func (n *Node) tellClock(l link.Report) {
	ahead, within, known := n.leaderAhead(l)
	if !known {
		return
	}
	own := -time.Duration(ahead)
	n.gossip.Update(func(m *member.Metadata) {
		if off := own - toldAhead(*m); max(off, -off) > clockStep+time.Duration(within) {
			m.Ahead = own.Milliseconds()
		}
	})
}

// toldAhead is how far a member says that its clock is ahead of the leader's.
func toldAhead(m member.Metadata) time.Duration {
	const most = int64(mostAhead / time.Millisecond)
	return time.Duration(max(-most, min(m.Ahead, most))) * time.Millisecond
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
