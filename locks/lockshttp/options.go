package lockshttp

import (
	"net/http"

	"github.com/wardmote/wardmote/cluster"
)

// Options configures Handler and Metrics. The zero value is sound: nobody can change
// anything, and no metric has a name of a key, a client or a member.
type Options struct {
	// Allow is asked before each action of the page. An error refuses the action: the
	// asker gets the error's text, and nothing is changed. key is the key of the action,
	// the Ref of a session for VerbEndSession, the name of the shards for VerbResize, and
	// "" for VerbRecover.
	//
	// Allow must find out who is asking: a request that arrives has proved no more than
	// that it comes from no page of another site. nil refuses every action.
	// Security.Authorize of the cluster is asked besides, on the leader.
	Allow func(r *http.Request, v cluster.Verb, key string) error

	// Hosts are the names under which browsers, proxies and programs reach the handlers, as
	// in the header Host and without a port: "locks.example.com". "*" permits all names.
	// An IP address and localhost are always permitted. A request with another Host is
	// refused with 403: it may come from a page of another site whose name was made to
	// resolve to this host.
	//
	// nil: requests to an address of loopback need an IP address or localhost as Host, and
	// other requests may have any Host. So Hosts is needed behind a proxy on the same host
	// that passes the Host of its own requests on.
	Hosts []string

	// Label returns the value of the label "key" for metrics about key. "" stands for
	// "other". Label should have few results: after the first 100 different ones every
	// further one counts as "other". Label is called from any goroutine and must not
	// block. nil: no metric tells keys apart.
	Label func(key string) string

	_ struct{}
}
