// Package fences runs the guards of package fence against the real thing: PostgreSQL,
// MariaDB and SQLite, by the drivers that people use. It is a module of its own, since
// its drivers are no business of the library.
//
// The servers are started by the tests, with a directory and a port of their own, and
// ended with them, even if the tests are killed. A server that is not installed leaves its tests out; with
// WARDMOTE_FENCES=all, as in CI, it fails them.
package fences
