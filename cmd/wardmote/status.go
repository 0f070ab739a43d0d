package main

import (
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// readFlags are the ways of the commands that read.
const readFlags = byURL | byJoin | withJSON

func statusCommand() *command {
	return &command{
		name:  "status",
		short: "is the cluster well, and what is to be done",
		long: `
Status prints the state of the cluster as a member knows it, the trouble and the next
action. It ends with 0 if all is well, with 1 if the cluster grants locks and something is
wrong, or if it does not grant yet, and with 2 if there is no quorum.

With several addresses in -url, status asks all of them: then -v shows which member
reaches which.`,
		ways: readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			verbose := fs.Bool("v", false, "who reaches whom, what names resolve to, clocks and versions")
			return func(p *program, w *way, rest []string) error { return p.status(w, rest, *verbose) }
		},
	}
}

func (p *program) status(w *way, rest []string, verbose bool) error {
	if err := noArguments("status", rest); err != nil {
		return err
	}
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.close()
	reports, failed := s.reports()
	if len(reports) == 0 {
		return failed[0]
	}
	if s.joined != nil && alone(reports[0]) {
		return fail(exitUnavailable, "see whether the addresses are right, and the cluster's name and secrets", "no member answered in %v: %s", w.timeout, tries(reports[0]))
	}
	best := pick(reports)
	if w.json {
		if err := printJSON(p.out, best); err != nil {
			return err
		}
		return exited(statusCode(best))
	}
	p.printStatus(best)
	if verbose {
		p.printDetails(reports)
	}
	for _, err := range failed {
		fmt.Fprintln(p.out, "page:    "+clean(trim(err)))
	}
	return exited(statusCode(best))
}

// reports asks all pages at the same time.
func (s *source) reports() (reports []locks.Report, failed []error) {
	type answer struct {
		report locks.Report
		err    error
	}
	answers := make([]chan answer, len(s.pages))
	for i, page := range s.pages {
		answers[i] = make(chan answer, 1)
		go func() {
			one := *s
			one.pages = []string{page}
			var a answer
			a.err = one.get("report.json", url.Values{}, &a.report)
			if a.err == nil && a.report.Node.Own.Name == "" {
				a.err = fail(exitUnavailable, "give the address of a page of lockshttp", "%sreport.json is no report", redacted(page))
			}
			answers[i] <- a
		}()
	}
	for _, c := range answers {
		if a := <-c; a.err == nil {
			reports = append(reports, a.report)
		} else {
			failed = append(failed, a.err)
		}
	}
	return reports, failed
}

// pick returns the report to believe: of a member that reaches a leader, if there is one.
func pick(reports []locks.Report) locks.Report {
	i := slices.IndexFunc(reports, func(r locks.Report) bool { return r.Node.Health.Quorum })
	return reports[max(i, 0)]
}

// statusCode is the exit code of status.
func statusCode(r locks.Report) int {
	h := r.Node.Health
	switch {
	case !h.Quorum:
		return exitNoQuorum
	case !h.Granting, h.Reason != "":
		return exitFailed
	}
	return exitOK
}

// alone reports whether a member has met no other one.
func alone(r locks.Report) bool {
	return !slices.ContainsFunc(r.Node.Members, func(m cluster.MemberReport) bool { return !m.Self }) && !r.Node.Leader.Reached
}

// tries lists the addresses that a member has tried, with the answers.
func tries(r locks.Report) string {
	var all []string
	for _, t := range r.Node.Join.Tries {
		answer := t.Answer
		if t.Joined {
			answer = "joined"
		}
		all = append(all, t.Addr+": "+answer)
	}
	for _, n := range r.Node.Join.Names {
		if n.Error != "" {
			all = append(all, n.Entry+": "+n.Error)
		}
	}
	if len(all) == 0 {
		return "no address to try: " + strings.Join(r.Node.Config.Join, ", ")
	}
	return strings.Join(all, "; ")
}

func (p *program) printStatus(r locks.Report) {
	n, h := r.Node, r.Node.Health
	state := "well"
	switch {
	case !h.Quorum:
		state = "NO QUORUM"
	case !h.Granting:
		state = "not granting yet"
	case h.Reason != "":
		state = "degraded"
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(p.out, "%-8s %s\n", name+":", clean(fmt.Sprintf(format, args...)))
	}
	line("state", "%s", state)
	line("cluster", "%s %s", n.Own.Cluster, n.Own.ClusterID)
	if n.Leader.Reached {
		line("leader", "%s at %s, term %d, for %s", n.Leader.Name, n.Leader.Addr, n.Leader.Term, since(time.Duration(n.Leader.For)))
	} else {
		line("leader", "none for %s", since(time.Duration(n.Leader.For)))
	}
	v := h.Voters
	line("voters", "%d of %d, %d reachable, %d caught up; %d more may fail", v.Present, v.Wanted, v.Reachable, v.CaughtUp, v.Bears)
	line("members", "%d", h.Members)
	if sum := n.Summary; sum != nil {
		line("table", "%s, %s, %s, %s, %s; %s old", number(sum.Keys, "key"), number(sum.Grants, "grant"), number(sum.Waits, "wait"),
			number(sum.Sessions, "session"), number(sum.Shards, "shard"), since(time.Duration(sum.Age)))
	}
	line("seen by", "%s (%s), up %s; last confirmed %s", n.Own.Name, n.Own.Role, since(time.Duration(n.Own.Up)), confirmed(n))
	for _, c := range h.Conflicts {
		line("conflict", "%s", c)
	}
	printTrouble(p.out, h.Reason, h.Next)
}

func confirmed(n cluster.Report) string {
	if n.Health.Confirmed.IsZero() {
		return "never"
	}
	return since(time.Duration(n.Health.Age)) + " ago"
}

// printDetails prints what -v adds.
func (p *program) printDetails(reports []locks.Report) {
	fmt.Fprintln(p.out, "\nreached, each row by the member in front:")
	var names []string
	for _, r := range reports {
		for _, m := range r.Node.Members {
			if !past(m) && !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	slices.Sort(names)
	t := newTable(p.out, append([]string{"MEMBER"}, names...)...)
	for _, r := range reports {
		row := []string{r.Node.Own.Name}
		for _, name := range names {
			i := slices.IndexFunc(r.Node.Members, func(m cluster.MemberReport) bool { return m.Name == name })
			if i < 0 {
				row = append(row, "unknown")
			} else {
				row = append(row, r.Node.Members[i].Reach)
			}
		}
		t.row(row...)
	}
	t.print()
	for _, r := range reports {
		n := r.Node
		fmt.Fprintf(p.out, "\n%s: version %s, %s, protocol %d, format %d\n", clean(n.Own.Name), clean(n.Own.Version.Module), clean(n.Own.Version.Go), n.Own.Version.Protocol, n.Own.Version.Format)
		for _, l := range n.Join.Names {
			fmt.Fprintf(p.out, "  name %s: %s, %s ago\n", clean(l.Entry), clean(strings.Join(l.Found, " ")+l.Error), since(time.Duration(l.Age)))
		}
		for _, a := range n.Join.Tries {
			answer := a.Answer
			if a.Joined {
				answer = "joined"
			}
			fmt.Fprintf(p.out, "  tried %s: %s, %s ago\n", clean(a.Addr), clean(answer), since(time.Duration(a.Age)))
		}
		p.printMembers(n)
	}
}

func membersCommand() *command {
	return &command{
		name:  "members",
		short: "the members, their votes, and how they are reached",
		long: `
Members prints the members as one of them knows them. REACH is "self"; "reached" if a
message came within the last seconds; "seen" if gossip counts the member as alive; "lost"
if gossip counts it as dead; "ended" if its process has ended for certain. CLOCK is how
far the member's wall clock is ahead of that of the member that answers, and the error of
the reading. Locks do not depend on it; logs and times in tables do.`,
		ways: readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			return func(p *program, w *way, rest []string) error {
				if err := noArguments("members", rest); err != nil {
					return err
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				var r locks.Report
				if err := s.get("report.json", nil, &r); err != nil {
					return err
				}
				if s.joined != nil && alone(r) {
					return fail(exitUnavailable, "see whether the addresses are right, and the cluster's name and secrets", "no member answered in %v: %s", w.timeout, tries(r))
				}
				if w.json {
					return printJSON(p.out, membersDocument{r.Node.Own.Name, r.Node.At, r.Node.Health.Quorum, r.Node.Members})
				}
				p.printMembers(r.Node)
				if h := r.Node.Health; !h.Quorum {
					fmt.Fprintln(p.out, "NO QUORUM; as "+clean(r.Node.Own.Name)+" knows the members")
					printTrouble(p.out, h.Reason, h.Next)
				}
				return nil
			}
		},
	}
}

// membersDocument is what members -json prints.
type membersDocument struct {
	Node    string                 `json:"node"` // the member that answered
	At      time.Time              `json:"at"`
	Quorum  bool                   `json:"quorum"`
	Members []cluster.MemberReport `json:"members"`
}

// past reports whether a member is gone and had no vote, as this command itself after a
// -join: nobody waits for it. JSON has such members too.
func past(m cluster.MemberReport) bool { return m.Thin && !m.Alive && !m.Self }

func (p *program) printMembers(n cluster.Report) {
	t := newTable(p.out, "NAME", "ADDRESS", "PART", "REACH", "HEARD", "VERSION", "CLOCK", "ZONE")
	for _, m := range n.Members {
		if past(m) {
			continue
		}
		part := "member"
		switch {
		case m.Leader:
			part = "leader"
		case m.Voter:
			part = "voter"
		case m.Thin:
			part = "thin"
		}
		if m.Leaving {
			part += ", leaving"
		}
		heard := "-"
		if !m.Heard.IsZero() {
			heard = since(time.Duration(m.Age)) + " ago"
		}
		clock := "-"
		if m.Clock != nil {
			clock = fmt.Sprintf("%+.2fs ±%.2f", time.Duration(*m.Clock).Seconds(), time.Duration(m.ClockError).Seconds())
		}
		t.row(m.Name, m.Addr, part, m.Reach, heard, m.Version, clock, m.Zone)
	}
	t.print()
}
