// Package httpfence fences requests to an HTTP service: the client sends its lock's
// token with each request, and the service refuses tokens below the highest it has seen.
//
//	// the client, under a lock
//	client := &http.Client{Transport: httpfence.Transport(nil)}
//	ctx := httpfence.WithResource(lock.Context(), "report/7") // a lock's context has its token
//	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
//
//	// the service
//	marks := httpfence.NewMemory(100_000)
//	http.Handle("PUT /report/{id}", httpfence.Require(func(r *http.Request) string {
//		return "report/" + r.PathValue("id")
//	}, marks.Guard, handler))
//
// # What a service promises
//
// A request of a token is served only while no higher token was shown, and a request of
// a higher token waits for the requests of lower tokens that are being served. Requests
// of one token are served side by side. Each request under a token shows the token, a
// GET too: let the first read of a new holder be fenced, and no earlier holder can
// change what was read.
//
// # Where the marks are
//
// Memory keeps the marks in the process. After a restart of the service a former holder
// is admitted until the present holder's next request. To exclude this, keep the marks
// with the data: Durable takes a fence.File, for a service of one process. A service of
// several processes shares a guard in its database: call Require without a guard, write
// by package sqlfence with the token of the request's context, and answer refusals by
// Refuse.
//
// # Statuses
//
//	428 Precondition Required   the request has no token
//	400 Bad Request             the token is not one, or the resource is another
//	412 Precondition Failed     stale; the header Fencing-Seen has the mark. Never retry.
//	503 Service Unavailable     the guard cannot decide now
package httpfence
