package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

func askCommand() *command {
	return &command{
		name: "ask", args: "KEY TOKEN",
		short: "ask the holder of a key to let go",
		long: `
Ask asks the holder of KEY with the token TOKEN, as wardmote locks prints it, to release KEY.
The holder is free to ignore that; wardmote run -yield obeys. Nobody else is asked, whoever
holds KEY by then.`,
		ways:    readFlags,
		prepare: aboutHolder("ask"),
	}
}

func breakCommand() *command {
	return &command{
		name: "break", args: "KEY TOKEN",
		short: "take a key away from its holder",
		long: `
Break takes the grant TOKEN of KEY away from its holder. It waits until the holder's client
has ended its lock, or until the trust of a holder that does not answer has ended: the key
is safe to use then. TOKEN is the token that wardmote locks prints.

If the time is over before that, the break goes on by itself.`,
		ways:    readFlags,
		prepare: aboutHolder("break"),
	}
}

// aboutHolder is the flags and the action of a command with KEY and TOKEN.
func aboutHolder(verb string) func(*flag.FlagSet) func(*program, *way, []string) error {
	return func(*flag.FlagSet) func(*program, *way, []string) error {
		return func(p *program, w *way, rest []string) error {
			if len(rest) != 2 {
				return usageError(verb, "%s takes KEY and TOKEN: see wardmote locks", verb)
			}
			if n, err := strconv.ParseUint(rest[1], 10, 64); err != nil || n == 0 {
				return usageError(verb, "%s: %q is no token", verb, rest[1])
			}
			return p.act(w, url.Values{
				"verb": {verb}, "key": {rest[0]}, "typed_key": {rest[0]}, "token": {rest[1]}, "typed_token": {rest[1]},
			})
		}
	}
}

// act carries out an action and tells its outcome.
func (p *program) act(w *way, form url.Values) error {
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.close()
	return p.actOn(w, s, form)
}

func (p *program) actOn(w *way, s *source, form url.Values) error {
	doc, err := s.act(form)
	if err != nil {
		return err
	}
	if w.json {
		if err := printJSON(p.out, doc); err != nil {
			return err
		}
	}
	if doc.Outcome == documents.Done {
		if !w.json {
			fmt.Fprintln(p.out, clean(doc.Text))
		}
		return nil
	}
	code := codeOfDocument(doc.Code)
	if w.json {
		return exited(code)
	}
	return fail(code, clean(doc.Text), "%s %s: %s", form.Get("verb"), doc.Key, trim(errors.New(doc.Error)))
}

func recoverCommand() *command {
	return &command{
		name: "recover", args: "[GONE...]",
		short: "found a successor of a cluster that has lost its majority for good",
		long: `
Recover founds a successor of a cluster that has lost the majority of its voters, on the
member of the page: no member decides by itself that others are gone. GONE are the names
of the members whose processes have ended and whose disks, if any, will not be used again.
A wrong name may let two clusters grant one lock.

Recover prints what the member knows of each voter, and then reads from its input the
name of the member and the names of GONE, typed again. Run it once, on one member.`,
		ways: byURL | withJSON,
		prepare: func(*flag.FlagSet) func(*program, *way, []string) error {
			return func(p *program, w *way, rest []string) error { return p.recover(w, rest) }
		},
	}
}

func (p *program) recover(w *way, gone []string) error {
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.close()
	if len(s.pages) > 1 {
		return usageError("recover", "recover runs on one member: give one address in -url")
	}
	var r locks.Report
	if err := s.get("report.json", nil, &r); err != nil {
		return err
	}
	own := r.Node.Own.Name
	if r.Node.Health.Quorum {
		return fail(exitFailed, "see wardmote status", "recover: the cluster has a quorum: leader %s", r.Node.Leader.Name)
	}
	if r, err = awaitSilence(s, r, gone); err != nil {
		return err
	}
	for _, m := range r.Node.Members {
		state := m.Reach
		if !m.Voter {
			state += ", no voter"
		}
		switch {
		case slices.Contains(gone, m.Name) && m.Foreign:
			state += ", a new process of a name that is gone: it joins the successor"
		case slices.Contains(gone, m.Name):
			state += ", named as gone"
		}
		fmt.Fprintf(p.err, "  %s at %s: %s\n", clean(m.Name), clean(m.Addr), clean(state))
	}
	if err := p.confirm(own, gone); err != nil {
		return err
	}
	return p.actOn(w, s, url.Values{"verb": {"recover"}, "key": {own}, "typed_key": {own}, "gone": gone})
}

// awaitSilence reads reports until the member has heard nothing of the gone for a few
// seconds, and refuses to go on if one of them is heard again: it lives. A process that
// has just been killed was reached until then.
func awaitSilence(s *source, first locks.Report, gone []string) (locks.Report, error) {
	heard := make(map[uint64]time.Time) // by boot, when the command began
	for _, m := range first.Node.Members {
		heard[m.Boot] = m.Heard
	}
	for r := first; ; {
		quiet := true
		for _, m := range r.Node.Members {
			if !slices.Contains(gone, m.Name) || m.Foreign { // a process started anew is in no cluster yet
				continue
			}
			if m.Reach == "self" || m.Reach == "reached" && !m.Heard.Equal(heard[m.Boot]) {
				return r, fail(exitFailed, "name only members whose processes have ended", "recover: %s lives: it answered %s ago", m.Name, since(time.Duration(m.Age)))
			}
			quiet = quiet && m.Reach != "reached"
		}
		if quiet {
			return r, nil
		}
		<-time.After(watchEvery)
		r = locks.Report{}
		if err := s.get("report.json", nil, &r); err != nil {
			return r, err
		}
	}
}

// confirm reads the names again.
func (p *program) confirm(own string, gone []string) error {
	want := append([]string{own}, gone...)
	fmt.Fprintf(p.err, "The voters of the old cluster retire, and a successor is founded on %s.\nType the name of that member, and the names of all members that are gone, with spaces between:\n", clean(own))
	line, err := bufio.NewReader(p.in).ReadString('\n')
	if err != nil && line == "" {
		return fail(exitFailed, "type the names", "recover: nothing was typed; nothing was changed")
	}
	got := strings.Fields(line)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fail(exitFailed, "try again", "recover: %q is not %q; nothing was changed", strings.Join(got, " "), strings.Join(want, " "))
	}
	return nil
}

func eventsCommand() *command {
	return &command{
		name:  "events",
		short: "what has happened, and with -f what happens",
		long: `
Events prints the latest events that a member has seen. With -f it goes on with those to
come, until it is interrupted. With -json each event is a line.

A stream that breaks off, or that is silent for 15 s, is opened again, with pauses of up to
5 s: at the next address of -url, if there are several. Stderr tells of both, and of events
that are missing in between. No event comes twice. With -join, events ends when its own
member has failed.`,
		ways: readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			follow := fs.Bool("f", false, "follow: print the events to come")
			return func(p *program, w *way, rest []string) error {
				if err := noArguments("events", rest); err != nil {
					return err
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				if *follow {
					return p.follow(w, s)
				}
				var r locks.Report
				if err := s.get("report.json", nil, &r); err != nil {
					return err
				}
				for _, e := range r.Node.Events {
					if err := p.printEvent(w, documents.Event{At: e.At, Kind: e.Kind, Node: e.Member, Detail: e.Detail, Next: e.Next}); err != nil {
						return err
					}
				}
				return nil
			}
		},
	}
}

func (p *program) printEvent(w *way, e documents.Event) error {
	if w.json {
		b, err := json.Marshal(e)
		if err == nil {
			_, err = fmt.Fprintln(p.out, string(b))
		}
		return err
	}
	text := e.At.Local().Format("15:04:05.000") + "  " + e.Kind
	for _, part := range []string{e.Node, e.Key, e.Client, e.Detail} {
		if part != "" {
			text += ": " + part
		}
	}
	if e.Token != 0 {
		text += fmt.Sprintf(" (token %d)", e.Token)
	}
	if e.Next != "" {
		text += "; next: " + e.Next
	}
	_, err := fmt.Fprintln(p.out, clean(text))
	return err
}
