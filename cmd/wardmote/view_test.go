//go:build unix

package main

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// ways are the two ways to a town, as flags.
func (w *town) ways() map[string][]string {
	return map[string][]string{"url": {"-url", w.procs[0].page}, "join": {"-join", w.join()}}
}

// hold starts a run that holds a key, and returns the token.
func hold(t *testing.T, w *town, key string, flags ...string) (r *running, token string) {
	t.Helper()
	args := append([]string{"run", "-join", w.join()}, flags...)
	r = begin(t, "", append(args, key, "--", "sh", "-c", "echo token $WARDMOTE_TOKEN; exec sleep 1000")...)
	r.awaitOutput("\n")
	return r, strings.TrimSpace(strings.TrimPrefix(r.stdout(), "token "))
}

func TestTablesAndJSON(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	_, token := hold(t, w, "shown/key")
	for way, flags := range w.ways() {
		for _, c := range []struct {
			args []string
			want []string // in the table
			into any
			keep string // a path in the JSON with a value of the test
		}{
			{[]string{"status"}, []string{"state:", "leader:", "3 of 3"}, new(locks.Report), `"name": "`},
			{[]string{"status", "-v"}, []string{"state:", "m0", "reached", "version"}, new(locks.Report), `"name": "`},
			{[]string{"members"}, []string{"NAME", "m0", "m1", "m2", "leader"}, new(membersDocument), `"name": "m1"`},
			{[]string{"locks"}, []string{"KEY", "shown/key", token, "exclusive"}, new(documents.Locks), `"token": "` + token + `"`},
			{[]string{"locks", "shown/"}, []string{"shown/key", "sh["}, new(documents.Locks), `"key": "shown/key"`},
			{[]string{"why", "shown/key"}, []string{"shown/key", token}, new(documents.Why), `"token": "` + token + `"`},
			{[]string{"sessions"}, []string{"CLIENT", "sh["}, new(documents.Sessions), `"ttl": "1m0s"`},
			{[]string{"shards", "no/such/name"}, []string{"NAME", "OWNS"}, new(documents.Shards), `"groups": [`},
		} {
			t.Run(way+" "+strings.Join(c.args, " "), func(t *testing.T) {
				t.Parallel()
				args := append([]string{c.args[0]}, flags...)
				out, err, code := runCLI(t, "", append(args, c.args[1:]...)...)
				// Other tests begin and end members all the time, which status may call trouble.
				least := func(code int) int {
					if c.args[0] == "status" && code == exitFailed {
						return exitOK
					}
					return code
				}
				if least(code) != 0 || err != "" {
					t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
				}
				for _, want := range c.want {
					if !strings.Contains(out, want) {
						t.Errorf("no %q in %s", want, out)
					}
				}
				out, err, code = runCLI(t, "", append(append(args, "-json"), c.args[1:]...)...)
				if least(code) != 0 || err != "" || !strings.Contains(out, c.keep) {
					t.Fatalf("code %d, stderr %q, no %q in %s", code, err, c.keep, out)
				}
				strict(t, out, c.into)
			})
		}
	}
}

// strict fails unless text is one JSON document of a type, without any other field, that
// is the same after decoding and encoding.
func strict(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Errorf("more than a document: %s", text)
	}
	again, err := json.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal([]byte(text), &a) != nil || json.Unmarshal(again, &b) != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("decoded and encoded again, %s is %s", text, again)
	}
}

func TestExitCodesOfViewsAndActions(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	page := w.procs[1].page
	dead := "http://" + freeAddr(t) + "/"
	_, guarded := hold(t, w, "guarded/key")
	_, unwanted := hold(t, w, "unwanted/key")
	for name, c := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"no command":           {nil, exitUsage, "usage:"},
		"no way":               {[]string{"status"}, exitUsage, "-url or -join"},
		"two ways":             {[]string{"status", "-url", page, "-join", w.join()}, exitUsage, "one of them"},
		"an argument":          {[]string{"status", "-url", page, "x"}, exitUsage, "no argument"},
		"no page":              {[]string{"status", "-url", dead}, exitUnavailable, "no answer from"},
		"no page, two asked":   {[]string{"locks", "-url", dead + "," + dead}, exitUnavailable, "no answer from"},
		"another page":         {[]string{"locks", "-url", strings.TrimSuffix(page, "wardmote/") + "elsewhere/"}, exitUnavailable, "lockshttp"},
		"not an address":       {[]string{"locks", "-url", "127.0.0.1:80"}, exitUsage, "not the address of a page"},
		"nobody to join":       {[]string{"status", "-timeout", "300ms", "-join", freeAddr(t)}, exitUnavailable, "no member answered"},
		"nobody to join, keys": {[]string{"locks", "-timeout", "300ms", "-join", freeAddr(t)}, exitUnavailable, "wardmote status"},
		"bad timeout":          {[]string{"locks", "-timeout", "-1s", "-url", page}, exitUsage, "-timeout"},
		"join, all shards":     {[]string{"shards", "-join", w.join()}, exitUsage, "give NAME"},
		"why nothing":          {[]string{"why", "-url", page}, exitUsage, "one KEY"},
		"break without token":  {[]string{"break", "-url", page, "guarded/key"}, exitUsage, "KEY and TOKEN"},
		"break by a word":      {[]string{"break", "-url", page, "guarded/key", "now"}, exitUsage, "no token"},
		"break refused":        {[]string{"break", "-url", page, "guarded/key", guarded}, exitDenied, "not yours"},
		"join, break refused":  {[]string{"break", "-join", w.join(), "guarded/key", guarded}, exitDenied, "not yours"},
		"page refuses":         {[]string{"ask", "-url", page, "unwanted/key", unwanted}, exitDenied, "not yours"},
		"break of another":     {[]string{"break", "-url", page, "guarded/key", "7"}, exitFailed, "7"},
		"break of nothing":     {[]string{"break", "-join", w.join(), "free", "7"}, exitFailed, "Nothing was changed"},
		"recover needs a page": {[]string{"recover", "-join", w.join()}, exitUsage, "-join"},
		"recover of a quorum":  {[]string{"recover", "-url", page}, exitFailed, "has a quorum"},
		"unknown help":         {[]string{"help", "nope"}, exitUsage, "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err, code := runCLI(t, "", c.args...)
			if code != c.code || out != "" || !strings.Contains(err, c.err) {
				t.Errorf("code %d in place of %d, stdout %q, stderr %q", code, c.code, out, err)
			}
			if strings.Count(err, "\n") > 1 && c.args != nil {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

// The page that lives answers, whichever stands first.
func TestOneOfSeveralPagesAnswers(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	dead := "http://" + freeAddr(t) + "/"
	out, err, code := runCLI(t, "", "status", "-v", "-url", dead+","+w.procs[0].page+","+w.procs[2].page)
	if code > exitFailed || err != "" || !strings.Contains(out, "page:") || !strings.Contains(out, "\nm2 ") {
		t.Errorf("code %d, stdout %s, stderr %q", code, out, err)
	}
	if _, err, code := runCLI(t, "", "locks", "-url", dead+","+w.procs[0].page); code != 0 {
		t.Errorf("code %d, stderr %q", code, err)
	}
}

func TestAskAndBreakOfARun(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	for way, flags := range w.ways() {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			key := "asked/" + way
			r, token := hold(t, w, key, "-yield")
			out, err, code := runCLI(t, "", append(append([]string{"ask"}, flags...), key, token)...)
			if code != 0 || err != "" || out == "" {
				t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
			} else if code := r.wait(); code != exitSignal+15 {
				t.Errorf("code %d after an ask, stderr %q", code, r.stderr())
			}
			// A command that ignores signals, and its child, are dead when the next begins.
			key = "broken/" + way
			s := succeed(t, w, key)
			token = lockOf(t, w, key)
			out, err, code = runCLI(t, "", append(append([]string{"break"}, flags...), key, token)...)
			if code != 0 || err != "" || out == "" {
				t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
			}
			s.check()
			if code := s.first.wait(); code != exitLost || !strings.Contains(s.first.stderr(), "broken by an operator") {
				t.Errorf("code %d after a break, stderr %q", code, s.first.stderr())
			}
		})
	}
}

// lockOf returns the token of a key's holder.
func lockOf(t *testing.T, w *town, key string) (token string) {
	t.Helper()
	out, err, code := runCLI(t, "", "locks", "-json", "-url", w.procs[0].page, key)
	var doc documents.Locks
	if code != 0 || json.Unmarshal([]byte(out), &doc) != nil {
		t.Fatalf("code %d, stdout %s, stderr %q", code, out, err)
	}
	if len(doc.Keys) != 1 || len(doc.Keys[0].Holders) != 1 {
		t.Fatalf("nobody holds %q: %s", key, out)
	}
	return strconv.FormatUint(uint64(doc.Keys[0].Holders[0].Token), 10)
}

func TestWatchAndFollow(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	for way, flags := range w.ways() {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			key := "watched/" + way
			watch := begin(t, "", append(append([]string{"locks", "-w"}, flags...), "watched/"+way)...)
			follow := begin(t, "", append([]string{"events", "-f", "-json"}, flags...)...)
			r, token := hold(t, w, key)
			watch.awaitOutput(token)
			follow.awaitOutput(`"kind":"`) // another member joins
			r.signal(syscall.SIGTERM)
			r.wait()
			await(t, "the line of a free key", func() bool {
				// Not the last line: a slow answer adds a line about its age.
				return strings.Contains("\n"+watch.stdout(), "\n"+key+"  -")
			})
			for _, r := range []*running{watch, follow} {
				r.signal(syscall.SIGINT)
				if code := r.wait(); code != 0 || r.stderr() != "" {
					t.Errorf("code %d, stderr %q", code, r.stderr())
				}
			}
			for line := range strings.Lines(follow.stdout()) {
				strict(t, line, new(documents.Event))
			}
		})
	}
	if out, err, code := runCLI(t, "", "events", "-url", w.procs[0].page); code != 0 || err != "" || !strings.Contains(out, "granting") {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
	}
}

// answerLimit is the promise of each command with a page: 200 ms, when most members are
// dead. The start of the program counts too, but for what it takes more than startsIn: a
// host with other work starts each program late.
const (
	answerLimit = 200 * time.Millisecond
	startsIn    = 30 * time.Millisecond
)

func TestCommandsAnswerWithoutAQuorum(t *testing.T) {
	t.Parallel()
	w := newTown(t, briefTTL/3) // the successor waits for so long
	_, token := hold(t, w, "kept")
	page := w.procs[2].page
	w.kill(0)
	w.kill(1)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status"}, exitNoQuorum, "NO QUORUM"},
		{[]string{"status", "-v"}, exitNoQuorum, "trouble:"},
		{[]string{"members"}, 0, "m2"},
		{[]string{"locks"}, 0, "old"},
		{[]string{"sessions"}, 0, "old"},
		{[]string{"shards"}, 0, "old"},
		{[]string{"events"}, 0, "granting"},
		{[]string{"why", "kept"}, 0, "old"},
	} {
		began, least, start, calls := time.Now(), time.Hour, time.Hour, 0
		await(t, "an answer without a quorum: "+strings.Join(c.args, " "), func() bool {
			run := time.Now()
			runProcess(t, "", "version")
			start = min(start, time.Since(run))
			asked := time.Now()
			out, err, code := runProcess(t, "", append([]string{c.args[0], "-url", page}, c.args[1:]...)...)
			least = min(least, time.Since(asked))
			calls++
			if code != 0 && code != exitNoQuorum || err != "" {
				t.Fatalf("%s: code %d, stdout %s, stderr %q", c.args, code, out, err)
			}
			// The member's first answers may still be the leader's.
			ok := code == c.code && strings.Contains(out, c.want) && (code != 0 || c.args[0] == "events" || strings.Contains(out, "NO QUORUM"))
			return ok && (least < answerLimit+max(0, start-startsIn) || calls > 10)
		})
		if least > answerLimit+max(0, start-startsIn) && hostStalls.Since(began) < testrounds.Void {
			t.Errorf("%s took %v", c.args, least)
		}
		t.Logf("%s took %v; the start of a program, %v", c.args, least, start)
	}
	// As a member: not without end, and with the reason.
	began := time.Now()
	out, err, code := runCLI(t, "", "status", "-timeout", "1s", "-join", w.join())
	if code != exitNoQuorum || err != "" {
		t.Errorf("code %d, stdout %s, stderr %q", code, out, err)
	}
	out, err, code = runCLI(t, "", "locks", "-timeout", "1s", "-join", w.join())
	if code != exitUnavailable || out != "" {
		t.Errorf("code %d, stdout %s, stderr %q", code, out, err)
	}
	if took := time.Since(began); took > 20*time.Second && hostStalls.Since(began) < testrounds.Void {
		t.Errorf("two commands took %v", took)
	}
	// Break, without an answer: no claim.
	if _, err, code := runCLI(t, "", "break", "-timeout", "500ms", "-url", page, "kept", token); code != exitUnavailable {
		t.Errorf("code %d, stderr %q", code, err)
	}
	recoverTown(t, w, page)
}

// recoverTown tries wrong confirmations, and then the right one.
func recoverTown(t *testing.T, w *town, page string) {
	for input, want := range map[string]string{"": "nothing was typed", "m2\n": "is not", "m0 m1\n": "is not"} {
		if out, err, code := runCLI(t, input, "recover", "-url", page, "m0", "m1"); code != exitFailed || out != "" || !strings.Contains(err, want) {
			t.Errorf("input %q: code %d, stdout %q, stderr %q", input, code, out, err)
		}
	}
	if _, err, code := runCLI(t, "m2 m2\n", "recover", "-url", page, "m2"); code != exitFailed || !strings.Contains(err, "lives") {
		t.Errorf("code %d, stderr %q", code, err)
	}
	out, err, code := runCLI(t, "m2 m0 m1\n", "recover", "-timeout", "60s", "-url", page, "m0", "m1")
	if code != 0 || !strings.Contains(out, "successor") || !strings.Contains(err, "m0 at") {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
	}
	await(t, "a state with a quorum", func() bool {
		_, _, code := runCLI(t, "", "status", "-url", page)
		return code != exitNoQuorum
	})
}

// Names of others are harmless on a terminal.
func TestNamesAreCleaned(t *testing.T) {
	if got := clean("a\x1b[31m\nb\tc"); got != "a?[31m?b?c" || clean("") != "-" {
		t.Errorf("%q", got)
	}
	if got := oneLine("a\nb"); got != "a; b" {
		t.Errorf("%q", got)
	}
}
