// Package browser tests the page of locks/lockshttp in a real browser: a headless
// Chromium, driven over its debugging pipe. The package has no code outside of its tests,
// and is a module of its own, since it needs a browser on the host.
//
//	cd internal/browser && go test ./...
//	cd internal/browser && go test -run TestTown -screenshots ../../docs/img .
//
// WARDMOTE_CHROMIUM names the browser's program; the default is the first of chromium,
// chromium-browser and google-chrome in PATH. The CI step browser installs Debian's
// package chromium.
//
// The test binary starts itself again for each member of a cluster. A member obeys
// commands on its standard input and ends when the input ends, so no process outlives
// the tests.
package browser
