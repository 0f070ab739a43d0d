package lockshttp

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// Bounds of actions.
const (
	maxActions  = 16        // running at a time
	maxForm     = 256 << 10 // bytes of a form
	maxGone     = 300       // members named as gone
	leastAction = 100 * time.Millisecond
	mostAction  = 2 * time.Minute
	someAction  = 10 * time.Second // the default
)

// action is a kind of action: its fields, what a person must type again, and the call.
// check and run are called one after the other within the action's time. An error of
// check says that nothing was changed.
type action struct {
	verb   cluster.Verb
	fields []string
	check  func(h *handler, ctx context.Context, f *form) error
	run    func(h *handler, ctx context.Context, f *form) error
	done   string // the outcome in words
	later  string // what may still happen if the time is over
}

var actions = map[string]action{
	"break": {
		verb: cluster.VerbBreak, fields: []string{"token", "typed_token"},
		check: checkHolder,
		run:   func(h *handler, ctx context.Context, f *form) error { return h.c.Break(ctx, f.key, f.token) },
		done:  "The grant is broken, and the key is safe to use.",
		later: "The grant may or may not be broken; a break under way continues by itself.",
	},
	"ask": {
		verb: cluster.VerbAsk, fields: []string{"token", "typed_token"},
		check: checkHolder,
		run:   func(h *handler, ctx context.Context, f *form) error { return h.c.AskHolder(ctx, f.key, f.token) },
		done:  "The holder is asked to release the key. It is free to ignore that.",
		later: "The holder may or may not have been asked.",
	},
	"end-session": {
		verb: cluster.VerbEndSession, fields: []string{"typed_token"},
		check: checkSession,
		run:   func(h *handler, ctx context.Context, f *form) error { return h.c.EndSession(ctx, f.key) },
		done:  "The session has ended, and its keys are safe to use. Its client may open another one.",
		later: "The session may or may not have been ended; an order under way continues by itself.",
	},
	"set-capacity": {
		verb: cluster.VerbSetCapacity, fields: []string{"from", "of"},
		check: checkTyped("the key"),
		run: func(h *handler, ctx context.Context, f *form) error {
			return h.c.ChangeCapacity(ctx, f.key, f.from, f.of)
		},
		done:  "The capacity is set.",
		later: "The capacity may or may not have been set.",
	},
	"resize": {
		verb: cluster.VerbResize, fields: []string{"from", "to"},
		check: checkTyped("the name"),
		run:   func(h *handler, ctx context.Context, f *form) error { return h.c.Resize(ctx, f.key, f.from, f.to) },
		done:  "The name has its new number of shards.",
		later: "The resize goes on by itself if it has begun: no work of the new number begins before the last work of the old number has returned.",
	},
	"recover": {
		verb: cluster.VerbRecover, fields: []string{"gone"},
		check: checkMember,
		run: func(h *handler, ctx context.Context, f *form) error {
			return h.c.Node().Recover(ctx, cluster.RecoverOptions{Gone: f.gone})
		},
		done:  "This member is in the successor of the lost cluster. It grants nothing for a TTL.",
		later: "A voter that has retired stays retired. Recover may be repeated.",
	},
}

// form is the parsed form of an action.
type form struct {
	values   url.Values
	key      string // the target: a key, a Ref, a name of shards; of recover, the member's name
	token    fence.Token
	of       int // of set-capacity
	from, to int // to: of resize
	gone     []string
	timeout  time.Duration
}

// refusal is the reason for which an action was not begun.
type refusal struct {
	status int
	code   string
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// serveAction carries out an action, or says why not. The order of the checks: where the
// request comes from, whether it can be read, whether its asker may, whether the person
// has typed what the cluster has now.
func (h *handler) serveAction(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		writeFailure(w, http.StatusMethodNotAllowed, documents.CodeInput, "only POST")
		return
	}
	if err := h.foreign.Check(r); err != nil {
		writeFailure(w, http.StatusForbidden, documents.CodeCrossOrigin, "the request comes from a page of another site: "+err.Error())
		return
	}
	if h.o.Allow == nil {
		writeFailure(w, http.StatusForbidden, documents.CodeForbidden, "this page has no actions: the program has set no Options.Allow")
		return
	}
	doc, status := h.act(w, r)
	_ = writeJSON(w, status, doc)
}

func (h *handler) act(w http.ResponseWriter, r *http.Request) (doc documents.Action, status int) {
	a, f, err := parseAction(w, r)
	if err == nil {
		doc.Verb, doc.Key = a.verb.String(), f.key
		select {
		case h.acting <- struct{}{}:
			defer func() { <-h.acting }()
		default:
			err = refuse(http.StatusServiceUnavailable, documents.CodeBusy, "%d actions are running already; nothing was changed", maxActions)
		}
	}
	if err == nil {
		target := f.key
		if a.verb == cluster.VerbRecover {
			target = ""
		}
		if e := h.o.Allow(r, a.verb, target); e != nil {
			err = refuse(http.StatusForbidden, documents.CodeForbidden, "not allowed: %s", e)
		}
	}
	if err != nil {
		return judge(doc, a, err, false)
	}
	ctx, cancel := context.WithTimeout(r.Context(), f.timeout)
	defer cancel()
	if err := a.check(h, ctx, f); err != nil {
		return judge(doc, a, err, false)
	}
	return judge(doc, a, a.run(h, ctx, f), true)
}

// judge tells the outcome of an action. begun says that the cluster may have been asked.
func judge(doc documents.Action, a action, err error, begun bool) (documents.Action, int) {
	if err == nil {
		doc.Outcome, doc.Text = documents.Done, a.done
		return doc, http.StatusOK
	}
	doc.Outcome, doc.Error = documents.Refused, err.Error()
	status := http.StatusConflict
	var why *refusal
	switch {
	case errors.As(err, &why):
		doc.Code, status = why.code, why.status
	case errors.As(err, new(*inputError)), errors.As(err, new(*cluster.ConfigError)):
		doc.Code, status = documents.CodeInput, http.StatusBadRequest
	case errors.Is(err, cluster.ErrDenied):
		doc.Code, status = documents.CodeDenied, http.StatusForbidden
	case errors.Is(err, locks.ErrHeld), errors.Is(err, locks.ErrShards), errors.Is(err, locks.ErrCapacity):
		doc.Code = documents.CodeMismatch
	case errors.Is(err, locks.ErrNotHeld):
		doc.Code = documents.CodeNotHeld
	case errors.Is(err, locks.ErrNoSuchSession):
		doc.Code = documents.CodeNoSession
	case errors.Is(err, locks.ErrResizing), errors.Is(err, locks.ErrTooManyCallers), errors.Is(err, locks.ErrTooManyCapacities), errors.Is(err, cluster.ErrVersion):
		doc.Code = documents.CodeFailed
	case errors.Is(err, cluster.ErrNoQuorum):
		doc.Code, status, doc.Outcome = documents.CodeNoQuorum, http.StatusServiceUnavailable, documents.Uncertain
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		doc.Code, status, doc.Outcome = documents.CodeTimeout, http.StatusGatewayTimeout, documents.Uncertain
	default:
		doc.Code, status, doc.Outcome = documents.CodeFailed, http.StatusInternalServerError, documents.Uncertain
	}
	if !begun {
		doc.Outcome = documents.Refused
	}
	if doc.Outcome == documents.Uncertain {
		doc.Text = "No definite answer. " + a.later
	} else {
		doc.Text = "Nothing was changed."
	}
	return doc, status
}

// parseAction reads the form of an action.
func parseAction(w http.ResponseWriter, r *http.Request) (a action, f *form, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return a, nil, refuse(http.StatusUnsupportedMediaType, documents.CodeInput, "an action is a form of the type application/x-www-form-urlencoded")
	}
	if r.URL.RawQuery != "" {
		return a, nil, badInput("query", "an action has its fields in its body")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return a, nil, refuse(http.StatusRequestEntityTooLarge, documents.CodeInput, "the form exceeds %d bytes", maxForm)
		}
		return a, nil, badInput("form", "cannot be read")
	}
	values := r.PostForm
	a, ok := actions[values.Get("verb")]
	if !ok {
		return a, nil, badInput("verb", "%.40q is none of ask, break, end-session, recover, resize, set-capacity", values.Get("verb"))
	}
	allowed := append([]string{"verb", "key", "typed_key", "timeout"}, a.fields...)
	if err := checkFields(values, allowed, []string{"gone"}); err != nil {
		return a, nil, err
	}
	f = &form{values: values, gone: values["gone"], timeout: someAction}
	if f.key, err = keyOf(values, "key"); err != nil {
		return a, f, err
	}
	return a, f, f.numbers(a)
}

// numbers reads the fields of f that are numbers, as far as the action has them.
func (f *form) numbers(a action) (err error) {
	has := func(field string) bool { return err == nil && slices.Contains(a.fields, field) }
	if has("token") {
		v := f.values.Get("token")
		n, e := strconv.ParseUint(v, 10, 64)
		if f.token = fence.Token(n); e != nil || n == 0 || !digits(v) {
			err = badInput("token", "%.40q is no token", v)
		}
	}
	if has("of") {
		f.of, err = countOf(f.values, "of", 0, locks.MaxCapacity, -1)
	}
	if has("from") && has("of") {
		f.from, err = countOf(f.values, "from", 0, locks.MaxCapacity, -1)
	}
	if has("from") && has("to") {
		f.from, err = countOf(f.values, "from", 1, locks.MaxShards, -1)
	}
	if has("to") {
		f.to, err = countOf(f.values, "to", 1, locks.MaxShards, -1)
	}
	if err == nil && len(f.gone) > maxGone {
		err = badInput("gone", "%d members exceed %d", len(f.gone), maxGone)
	}
	if v := f.values.Get("timeout"); err == nil && v != "" {
		if f.timeout, err = time.ParseDuration(v); err != nil || f.timeout < leastAction || f.timeout > mostAction {
			err = badInput("timeout", "%.40q is no duration from %v to %v", v, leastAction, mostAction)
		}
	}
	return err
}

// typed returns an error unless the person has typed want in a field, as it is or as the
// page shows it.
func (f *form) typed(field, want, what string) error {
	switch got := f.values.Get(field); got {
	case want, visible(want):
		return nil
	case "":
		return refuse(http.StatusConflict, documents.CodeMismatch, "%s: type %s again", field, what)
	default:
		return refuse(http.StatusConflict, documents.CodeMismatch, "%s: %s is not %s", field, strconv.Quote(cut(got)), what)
	}
}

func cut(s string) string { return s[:min(len(s), 80)] }

// checkHolder returns an error unless the person has typed the key, and the token of a
// present holder. The cluster compares the token once more when it acts: the check is for
// an answer that says that nothing was changed.
func checkHolder(h *handler, ctx context.Context, f *form) error {
	if err := f.typed("typed_key", f.key, "the key"); err != nil {
		return err
	}
	st, err := h.c.Inspect(ctx, f.key)
	switch {
	case err != nil:
		return err
	case !st.Held():
		return refuse(http.StatusConflict, documents.CodeNotHeld, "nobody holds the key now")
	}
	return f.present(st)
}

// present returns an error unless the token is a present holder's, and typed again.
func (f *form) present(st locks.Status) error {
	if err := f.typed("typed_token", strconv.FormatUint(uint64(f.token), 10), "the token"); err != nil {
		return err
	}
	if !slices.ContainsFunc(st.Holders, func(h locks.Holder) bool { return h.Token == f.token }) {
		return refuse(http.StatusConflict, documents.CodeMismatch, "no present holder has the token %d: look again", f.token)
	}
	return nil
}

// leastRef is how many digits of a Ref a person must type: no two sessions of a cluster
// share so many.
const leastRef = 8

// checkSession returns an error unless the person has typed the name of the session's
// client, and the beginning of its Ref.
func checkSession(h *handler, ctx context.Context, f *form) error {
	if len(f.key) != 32 || strings.Trim(f.key, "0123456789abcdef") != "" {
		return badInput("key", "%.40q is no Ref of a session: 32 hexadecimal digits", f.key)
	}
	typed := f.values.Get("typed_token")
	if len(typed) < leastRef || !strings.HasPrefix(f.key, typed) {
		return refuse(http.StatusConflict, documents.CodeMismatch, "typed_token: type the first %d digits of the session's Ref", leastRef)
	}
	for s, err := range h.c.Sessions(ctx) {
		if err != nil {
			return err
		}
		if s.Ref == f.key {
			return f.typed("typed_key", s.Client, "the name of the session's client")
		}
	}
	return refuse(http.StatusConflict, documents.CodeNoSession, "no session of that Ref is open")
}

// checkTyped returns a check that the person has typed the target, what. The cluster
// compares the numbers of the form when it acts.
func checkTyped(what string) func(*handler, context.Context, *form) error {
	return func(_ *handler, _ context.Context, f *form) error { return f.typed("typed_key", f.key, what) }
}

// checkMember returns an error unless the target is this member, and the person has typed
// its name.
func checkMember(h *handler, ctx context.Context, f *form) error {
	if own := h.c.Node().Name(); f.key != own {
		return refuse(http.StatusConflict, documents.CodeMismatch, "key: this member is %s", own)
	}
	return f.typed("typed_key", f.key, "the name of this member")
}
