package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
)

// own reports whether a document of a joined member says no more than what this program
// knows of itself. The page of a thin member is in no better place, and its answer is
// printed with its source.
func (s *source) own(h documents.Head) bool {
	return s.joined != nil && h.Source != documents.SourceCluster
}

// load gets a document. A joined member may have just found its leader: it asks until the
// time limit, and then the error says why there is no answer.
func (s *source) load(name string, q url.Values, doc any, head func() documents.Head) error {
	for until := time.Now().Add(s.limit); ; time.Sleep(20 * time.Millisecond) {
		if err := s.get(name, q, doc); err != nil {
			return err
		}
		h := head()
		if !s.own(h) {
			return nil
		}
		if time.Now().After(until) {
			why := h.Reason
			if why == "" {
				why = "the leader does not answer"
			}
			return fail(exitUnavailable, "see wardmote status, or ask a member's page by -url", "no answer in %v: %s", s.limit, why)
		}
	}
}

func locksCommand() *command {
	return &command{
		name: "locks", args: "[PREFIX]",
		short: "the keys that are held or waited for",
		long: `
Locks prints the keys that begin with PREFIX and have holders or waiters. LEFT is how long
the cluster keeps the grant if no further beat arrives; only the leader knows.`,
		ways: readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			watch := fs.Bool("w", false, "go on, and print each key that changes, until interrupted")
			return func(p *program, w *way, rest []string) error {
				if len(rest) > 1 {
					return usageError("locks", "locks takes one PREFIX: %q", rest[1])
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				prefix := strings.Join(rest, "")
				if *watch {
					return p.watchLocks(w, s, prefix)
				}
				doc, err := s.locks(prefix)
				if err != nil {
					return err
				}
				if w.json {
					return printJSON(p.out, doc)
				}
				t := newTable(p.out, lockHeads...)
				for _, k := range doc.Keys {
					lockRows(t, k)
				}
				t.print()
				fmt.Fprintf(p.out, "%s, ", number(len(doc.Keys), "key"))
				printHead(p.out, doc.Head)
				return nil
			}
		},
	}
}

// locks gets all pages of the list.
func (s *source) locks(prefix string) (all documents.Locks, err error) {
	q := url.Values{"prefix": {prefix}, "limit": {"1000"}}
	for {
		var doc documents.Locks
		if err := s.load("locks.json", q, &doc, func() documents.Head { return doc.Head }); err != nil {
			return all, err
		}
		keys := append(all.Keys, doc.Keys...)
		all = doc
		all.Keys = keys
		if !doc.More || doc.After == "" {
			all.More, all.After = false, ""
			return all, nil
		}
		q.Set("after", doc.After)
	}
}

var lockHeads = []string{"KEY", "HOLDER", "ON", "TOKEN", "MODE", "HELD", "LEFT", "WAITERS", "NOTE"}

// lockRows prints a row for each holder of a key, or one without a holder.
func lockRows(t *table, k documents.Key) {
	queue := strconv.Itoa(k.Queue)
	if len(k.Holders) == 0 {
		t.row(k.Key, "-", "-", "-", "-", "-", "-", queue, "")
		return
	}
	for _, h := range k.Holders {
		mode := h.Mode
		if h.Permits > 0 {
			mode += fmt.Sprintf(" %d/%d", h.Permits, k.Capacity)
		}
		if h.Tree {
			mode += ", tree"
		}
		var notes []string
		for note, is := range map[string]bool{"asked": h.Asked, "broken": h.Broken, "delayed": h.Delayed, "sticky": h.Sticky} {
			if is {
				notes = append(notes, note)
			}
		}
		note := strings.Join(notes, ",")
		if note == "" {
			note = " "
		}
		t.row(k.Key, h.Client, h.Node, strconv.FormatUint(uint64(h.Token), 10), mode, age(h.Age), age(h.Left), queue, note)
	}
	if k.Holding > len(k.Holders) {
		t.row(k.Key, fmt.Sprintf("and %d more", k.Holding-len(k.Holders)))
	}
}

// watchEvery is how often the list is read again.
const watchEvery = 500 * time.Millisecond

// watchLocks prints the keys, and then each key that changes. Without an answer it says
// so, once, and goes on.
func (p *program) watchLocks(w *way, s *source, prefix string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	defer signal.Stop(stop)
	printed := make(map[string]string)
	head := ""
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		doc, err := s.locks(prefix)
		switch {
		case err != nil && first:
			return err
		case err != nil:
			doc.Head.Reason = trim(err)
		}
		if now := fmt.Sprint(doc.Quorum, doc.Source, doc.Reason); now != head && !w.json && (!first || !doc.Quorum) {
			printHead(p.out, doc.Head)
			head = now
		}
		if err == nil {
			p.printChanges(w, doc, printed)
		}
		select {
		case <-tick.C:
		case <-stop:
			return nil
		}
	}
}

// printChanges prints the changed keys: printed has the last printed state of each key.
func (p *program) printChanges(w *way, doc documents.Locks, printed map[string]string) {
	t := newTable(p.out)
	seen := make(map[string]bool)
	show := func(k documents.Key) {
		if w.json {
			b, _ := json.Marshal(k) // text and numbers: all of it has an encoding
			fmt.Fprintln(p.out, string(b))
		} else {
			lockRows(t, k)
		}
	}
	for _, k := range doc.Keys {
		seen[k.Key] = true
		if state := stateOf(k); printed[k.Key] != state {
			printed[k.Key] = state
			show(k)
		}
	}
	for key := range printed {
		if !seen[key] {
			delete(printed, key)
			show(documents.Key{Key: key, Holders: []documents.Holder{}, Waiters: []documents.Waiter{}})
		}
	}
	if !w.json {
		t.print()
	}
}

// stateOf is a key's state without the times, which change all the time.
func stateOf(k documents.Key) string {
	text := fmt.Sprint(k.Holding, k.Queue, k.Token, k.Permits, k.Capacity)
	for _, h := range k.Holders {
		text += fmt.Sprint(" ", h.Token, h.Mode, h.Permits, h.Asked, h.Broken, h.Delayed)
	}
	return text
}

func whyCommand() *command {
	return &command{
		name: "why", args: "KEY",
		short: "why a key is taken: its holders, and what they wait for themselves",
		long:  "Why explains the state of KEY: who holds it, who waits, and what the holders wait for.",
		ways:  readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			return func(p *program, w *way, rest []string) error {
				if len(rest) != 1 {
					return usageError("why", "why takes one KEY")
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				var doc documents.Why
				if err := s.load("why.json", url.Values{"key": rest}, &doc, func() documents.Head { return doc.Head }); err != nil {
					return err
				}
				if w.json {
					return printJSON(p.out, doc)
				}
				for _, text := range doc.Text {
					fmt.Fprintln(p.out, clean(text))
				}
				if len(doc.Key.Holders) > 0 {
					fmt.Fprintln(p.out)
					t := newTable(p.out, lockHeads...)
					lockRows(t, doc.Key)
					t.print()
				}
				if len(doc.Key.Waiters) > 0 {
					fmt.Fprintln(p.out)
					t := newTable(p.out, "WAITS", "ON", "BEHIND", "MODE", "FOR", "PRIORITY")
					for _, x := range doc.Key.Waiters {
						t.row(x.Client, x.Node, strconv.Itoa(x.Position), x.Mode, age(x.Age), strconv.Itoa(x.Priority))
					}
					t.print()
				}
				fmt.Fprintln(p.out)
				printHead(p.out, doc.Head)
				return nil
			}
		},
	}
}

func shardsCommand() *command {
	return &command{
		name: "shards", args: "[NAME]",
		short: "the names of Spread, and the owners of their shards",
		long: `
Shards prints the callers of Spread with the shards that they own, for NAME or for all
names. With -join it needs a NAME: a member without a vote does not know all of them.`,
		ways: readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			return func(p *program, w *way, rest []string) error {
				q := url.Values{}
				if len(rest) == 1 {
					q.Set("name", rest[0])
				} else if len(rest) > 1 {
					return usageError("shards", "shards takes one NAME: %q", rest[1])
				} else if w.url == "" {
					return usageError("shards", "shards: with -join give NAME")
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				var doc documents.Shards
				if err := s.load("shards.json", q, &doc, func() documents.Head { return doc.Head }); err != nil {
					return err
				}
				if w.json {
					return printJSON(p.out, doc)
				}
				t := newTable(p.out, "NAME", "CALLER", "ON", "OWNS", "OF", "ASSIGNED", "WEIGHT", "SHARDS")
				for _, g := range doc.Groups {
					for _, o := range g.Owners {
						t.row(g.Name, o.Client, o.Node, strconv.Itoa(o.Owned), strconv.Itoa(g.Shards), strconv.Itoa(o.Assigned), strconv.Itoa(o.Weight), o.Shards)
					}
					if g.Orphans != "" {
						t.row(g.Name, "nobody", "-", "-", strconv.Itoa(g.Shards), "-", "-", g.Orphans)
					}
				}
				if len(doc.Groups) == 0 {
					fmt.Fprint(p.out, "no shards: nobody calls Spread, ")
				} else {
					t.print()
				}
				if doc.More {
					fmt.Fprintln(p.out, "there are more names: give NAME")
				}
				printHead(p.out, doc.Head)
				return nil
			}
		},
	}
}

func sessionsCommand() *command {
	return &command{
		name:  "sessions",
		short: "the clients of all members, and how much they hold",
		long:  "Sessions prints the open sessions. A client of a process has one.",
		ways:  readFlags,
		prepare: func(fs *flag.FlagSet) func(*program, *way, []string) error {
			return func(p *program, w *way, rest []string) error {
				if err := noArguments("sessions", rest); err != nil {
					return err
				}
				s, err := w.open()
				if err != nil {
					return err
				}
				defer s.close()
				doc, err := s.sessions()
				if err != nil {
					return err
				}
				if w.json {
					return printJSON(p.out, doc)
				}
				t := newTable(p.out, "CLIENT", "ON", "KEYS", "WAITS", "TTL", "OPEN", "LEFT", "REF")
				for _, x := range doc.Sessions {
					t.row(x.Client, x.Node, strconv.Itoa(x.Keys), strconv.Itoa(x.Waits), since(time.Duration(x.TTL)), age(x.Age), age(x.Left), x.Ref)
				}
				t.print()
				fmt.Fprintf(p.out, "%s, ", number(len(doc.Sessions), "session"))
				printHead(p.out, doc.Head)
				return nil
			}
		},
	}
}

// sessions gets all pages of the list.
func (s *source) sessions() (all documents.Sessions, err error) {
	q := url.Values{"limit": {"1000"}}
	for {
		var doc documents.Sessions
		if err := s.load("sessions.json", q, &doc, func() documents.Head { return doc.Head }); err != nil {
			return all, err
		}
		sessions := append(all.Sessions, doc.Sessions...)
		all = doc
		all.Sessions = sessions
		if !doc.More || doc.After == "" {
			all.More, all.After = false, ""
			return all, nil
		}
		q.Set("after", doc.After)
	}
}
