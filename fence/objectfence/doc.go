// Package objectfence fences a state that lives in an object store: S3 and what speaks
// its language, Google Cloud Storage, Azure Blob Storage, or anything else that can put
// an object on the condition that nobody else has put it meanwhile.
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
// The token and the state are one object, the manifest, so that one conditional put
// changes both. Large data goes into objects of its own, with names that are never used
// twice; the manifest's state names those that count. A token in an object's metadata
// would not do: a store's condition is about the content, or about any put at all.
//
// A writer whose manifest was put meanwhile reads again. If the token there is still its
// own, it was a put of the same grant, and the change is made once more on the new
// state; a higher token says that the grant is over.
//
// # A put that seems to have failed
//
// A put may succeed and its answer be lost. Many clients of stores then try again by
// themselves, find their own success in the way, and report a conflict. So each change
// has a number of its own, and the manifest remembers the latest ones: a change that is
// found there was made, whatever the client has reported.
//
// A deleted manifest is an absent one: it has forgotten the token. Delete the state, and
// keep the manifest.
package objectfence
