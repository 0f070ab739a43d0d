// Package documents defines the JSON documents of package lockshttp, for the handler
// that writes the documents and for the command that reads them.
//
// All documents follow the same rules:
//
//   - Every document begins with the fields of Head: the member that answered, the
//     source of the data, and the age of the data.
//   - Times are in RFC 3339 and UTC. Durations are strings of time.Duration, as "1.5s".
//   - Tokens and other numbers of 64 bits are strings, since a reader in JavaScript has
//     53 bits.
//   - An unknown value is left out. An empty list is [].
//   - Names of fields stay. New fields may appear, so a reader ignores the fields that
//     it does not know.
//
// The package has no goroutine and does no I/O.
package documents
