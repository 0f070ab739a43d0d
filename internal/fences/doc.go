// Package fences tests the guards of package fence against real servers: PostgreSQL,
// MariaDB, SQLite, Redis and a server that speaks S3, with the common drivers. The package
// is a module of its own, so that users of wardmote do not depend on the drivers.
//
// The tests start each server with a directory and a port of its own. The servers end with
// the tests, even if the tests are killed. If a server is not installed, its tests are
// skipped; with WARDMOTE_FENCES=all, as in CI, its tests fail. The S3 server is built from
// its source, in the version of testdata/s3server, which takes a minute the first time.
package fences
