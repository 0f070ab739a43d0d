// Package objectfence fences a state in an object store with conditional puts: S3 and
// compatible stores, Google Cloud Storage, Azure Blob Storage. A conditional put fails if
// somebody else has put the object meanwhile.
//
//	m, err := objectfence.New(store, "jobs/nightly.json")
//	...
//	err = m.Claim(ctx, lock.Token())  // once per grant, before the first read
//	...
//	err = m.Do(ctx, lock.Token(), func(state []byte) ([]byte, error) {
//		return append(state, line...), nil // the new state, whole
//	})
//
// # The manifest
//
// Token and state are one object, the manifest, and one conditional put changes both.
// Store large data in objects of its own, under names that are never used again, and keep
// the present names in the manifest's state. A token in an object's metadata is not
// protected: an ETag depends on the content alone.
//
// After a conflict the writer reads the manifest. If the manifest has the writer's token,
// the conflict was within the same grant, and the writer repeats the change on the new
// state. If the manifest has a higher token, the grant is over.
//
// # A put that seems to have failed
//
// A put can succeed although its answer is lost. Many client libraries then repeat the
// put by themselves and report a conflict with their own first put. So each change has an
// ID, and the manifest keeps the IDs of the latest changes: a change with an ID in the
// manifest was made, even if the client library has reported a conflict.
//
// A deleted manifest has forgotten its token. Never delete a manifest: write an empty
// state.
package objectfence
