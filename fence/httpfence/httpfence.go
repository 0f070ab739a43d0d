package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/wardmote/wardmote/fence"
)

// The headers of a fenced request, and of its refusal. Tokens travel as decimal numbers.
const (
	HeaderToken    = "Fencing-Token"
	HeaderResource = "Fencing-Resource"
	HeaderSeen     = "Fencing-Seen"
)

// MaxResource is the longest name of a resource, in bytes. Require refuses longer names,
// because Memory keeps the names, and strangers may choose the names.
const MaxResource = 1024

// A Guard protects one resource. Do runs serve if no token above t was shown, and returns
// the error of serve. Without running serve, Do fails like fence.Guard.Do, with ctx's
// error if ctx ends first, or with another error if the guard cannot decide.
type Guard interface {
	Do(ctx context.Context, t fence.Token, serve func() error) error
}

// Require returns a handler that admits a request to next if the guard of the request's
// resource admits the request's token. Next finds the token in the request's context.
//
// The function resource returns the name of the resource of a request. A request whose
// header HeaderResource has another name is refused. If resource is nil, the header
// alone names the resource, and a request without the header is refused. Names longer
// than MaxResource are refused.
//
// If guard is nil, Require admits every request with a token. Next must then check the
// token, for example by package sqlfence, and answer refusals by Refuse.
//
// A request counts as served until next returns. So next must not leave work behind: put
// http.TimeoutHandler around the handler that Require returns, never inside, because an
// http.TimeoutHandler returns while its handler still works.
func Require(resource func(*http.Request) string, guard func(resource string) Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get(HeaderToken)
		if text == "" {
			http.Error(w, "this request needs the header "+HeaderToken, http.StatusPreconditionRequired)
			return
		}
		t, err := fence.ParseToken(text)
		if err != nil || t == 0 || len(r.Header.Values(HeaderToken)) > 1 {
			http.Error(w, "the header "+HeaderToken+" is not one token", http.StatusBadRequest)
			return
		}
		named := r.Header.Get(HeaderResource)
		name := named
		if resource != nil {
			name = resource(r)
		}
		if name == "" || named != "" && named != name || len(name) > MaxResource || len(r.Header.Values(HeaderResource)) > 1 {
			http.Error(w, "the header "+HeaderResource+" does not name the resource of this request", http.StatusBadRequest)
			return
		}
		served := r.WithContext(fence.NewContext(r.Context(), t))
		if guard == nil {
			next.ServeHTTP(w, served)
			return
		}
		Refuse(w, guard(name).Do(r.Context(), t, func() error {
			next.ServeHTTP(w, served)
			return nil
		}))
	})
}

// Refuse answers a request that a guard has refused with err: 412 with the mark for a
// stale token, 428 for token zero, 503 for any other error. The text of such an error is
// not sent. With err nil Refuse writes nothing and returns false; otherwise Refuse
// returns true.
func Refuse(w http.ResponseWriter, err error) bool {
	var stale *fence.StaleError
	switch {
	case err == nil:
		return false
	case errors.As(err, &stale):
		w.Header().Set(HeaderSeen, stale.Seen.String())
		http.Error(w, stale.Error(), http.StatusPreconditionFailed)
	case errors.Is(err, fence.ErrUnfenced):
		http.Error(w, err.Error(), http.StatusPreconditionRequired)
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the guard cannot decide now", http.StatusServiceUnavailable)
	}
	return true
}

// Err returns the refusal that a response carries: a *fence.StaleError for a 412 with
// the mark, an error that matches fence.ErrUnfenced for a 428, and nil for every other
// response. The body is left alone.
func Err(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusPreconditionFailed:
		seen, err := fence.ParseToken(r.Header.Get(HeaderSeen))
		if err != nil || r.Request == nil {
			return nil // another precondition of HTTP
		}
		sent, err := fence.ParseToken(r.Request.Header.Get(HeaderToken))
		if err != nil {
			return nil
		}
		return &fence.StaleError{Token: sent, Seen: seen}
	case http.StatusPreconditionRequired:
		return fmt.Errorf("httpfence: %w", fence.ErrUnfenced)
	}
	return nil
}

type resourceKey struct{}

// WithResource returns a context with the name of a resource. Transport sends the name in
// the header HeaderResource of requests with this context.
func WithResource(ctx context.Context, resource string) context.Context {
	return context.WithValue(ctx, resourceKey{}, resource)
}

// Transport returns a RoundTripper that sends the token of a request's context, and the
// resource of WithResource, in the headers. The contexts of locks carry tokens. A
// request without a token in its context is sent unchanged, and a fenced service refuses
// the request. With base nil the transport is http.DefaultTransport.
//
// A refusal is a response, and no error of RoundTrip: see Err.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, ok := fence.FromContext(r.Context())
	if !ok {
		return t.base.RoundTrip(r)
	}
	r = r.Clone(r.Context()) // a RoundTripper changes no request
	r.Header.Set(HeaderToken, token.String())
	if name, ok := r.Context().Value(resourceKey{}).(string); ok {
		r.Header.Set(HeaderResource, name)
	}
	return t.base.RoundTrip(r)
}
