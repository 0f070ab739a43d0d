// Package httpfence fences requests to an HTTP service: the client sends its lock's
// token with each request, and the service refuses every token below the mark, the
// highest token shown.
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
// # Promises of a service
//
// A request is served only while no token above its own was shown. A request with a
// higher token waits until the requests with lower tokens have been served. Requests with
// equal tokens are served side by side. Each request under a token shows the token, a GET
// too: if the first read of a new holder is fenced, no earlier holder can change the data
// read.
//
// Require believes every token. A forged token of 2^64-1 would shut out all holders, so
// authenticate clients before Require.
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
//	400 Bad Request             the token or the name of the resource is not valid
//	412 Precondition Failed     stale; the header Fencing-Seen has the mark. Never retry.
//	503 Service Unavailable     the guard cannot decide now
package httpfence
