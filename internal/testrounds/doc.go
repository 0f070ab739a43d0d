// Package testrounds sets how many rounds the long tests run. A plain run of the
// tests is quick; with WARDMOTE_FULL set to anything, the tests run all their
// rounds, as CI does:
//
//	WARDMOTE_FULL=1 go test ./...
package testrounds
