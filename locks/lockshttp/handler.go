package lockshttp

import (
	"net/http"

	"github.com/wardmote/wardmote/locks"
)

// Handler returns a handler of the page, the documents, the events and the actions.
func Handler(c *locks.Client, o Options) http.Handler {
	return http.NotFoundHandler()
}
