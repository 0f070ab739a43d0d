// Package lockshttp serves a member's view of its cluster over HTTP, for three
// audiences:
//
//   - Handler is for people: a page with the members, keys, shards, sessions and events,
//     and the same as JSON documents. The page can carry actions.
//   - Probes is for an orchestrator: /livez and /readyz.
//   - Metrics is for a monitoring system, as OpenMetrics text.
//
// # Where the handlers stand
//
// Each handler looks at the last element of the request's path alone, so it works at the
// root, behind a prefix with or without http.StripPrefix, and behind a proxy that adds or
// removes a prefix. All addresses in the page are relative.
//
//	mux.Handle("/wardmote/", lockshttp.Handler(client, lockshttp.Options{}))
//	mux.Handle("/livez", lockshttp.Probes(client))
//	mux.Handle("/readyz", lockshttp.Probes(client))
//
// # Who may see it
//
// The handlers check nobody's identity. The page and the documents show names of keys,
// clients and members, and the metas that clients have set. Put the handlers behind the
// program's own authentication. A port of loopback alone is open to every user of the
// host, and to pages in a browser there whose host name is made to resolve to loopback:
// refuse requests with a foreign Host, as examples/router does.
package lockshttp
