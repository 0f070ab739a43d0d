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
// host. It is not open to pages of other sites in a browser there, whose names are made to
// resolve to loopback: the handlers refuse a foreign Host, see Options.Hosts. Probes, which
// say nothing about keys, do not look at Host.
package lockshttp
