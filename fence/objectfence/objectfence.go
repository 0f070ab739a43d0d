package objectfence

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// ErrConflict is the error of a Store's Put for an object with another version than the
// expected version: S3's 412 and 409, Google's 412, Azure's 412 and 409.
var ErrConflict = errors.New("objectfence: the object was put meanwhile")

// A Store is an object store with conditional puts.
type Store interface {
	// Get returns the content of an object and its version: S3's and Azure's ETag,
	// Google's generation. For an object that does not exist all three results are
	// zero. Get must return the latest version, and not a cache's.
	Get(ctx context.Context, key string) (body []byte, version string, err error)

	// Put replaces the object if the object still has the version. If version is empty,
	// Put creates the object if there is none. Put returns the new version. Put returns an error
	// that matches ErrConflict if the condition did not hold. After any other error the
	// object may or may not have been put, now or in a moment.
	Put(ctx context.Context, key string, body []byte, version string) (string, error)
}

// MaxState is the largest state in bytes. Larger data belongs in objects of its own.
const MaxState = 1 << 20

// A LimitError refuses a key, a state or a token. Nothing was changed.
type LimitError struct {
	Field string // "key", "state", "token"
	Limit string
}

func (e *LimitError) Error() string { return fmt.Sprintf("objectfence: %s: want %s", e.Field, e.Limit) }

// A DamagedError refuses an object that is no manifest. Nothing was changed; a person must
// look.
type DamagedError struct {
	Key    string
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("objectfence: the object %q is no manifest: %s", e.Key, e.Reason)
}

// A Manifest is one fenced state in a store. A Manifest may be used from any goroutine,
// and any number of processes may have a Manifest of the same key.
type Manifest struct {
	store Store
	key   string
}

// New returns the manifest with a key of 1 to 1,024 bytes. New does not touch the store.
func New(store Store, key string) (*Manifest, error) {
	if key == "" || len(key) > 1024 {
		return nil, &LimitError{"key", "1 to 1024 bytes"}
	}
	return &Manifest{store, key}, nil
}

// manifest is the object's content, as JSON.
type manifest struct {
	Format int         `json:"wardmote_manifest"`
	Token  fence.Token `json:"token"`
	Count  int64       `json:"count,string"` // of all changes, claims too
	Latest []string    `json:"latest"`       // numbers of the latest changes, the newest last
	State  []byte      `json:"state"`
}

const (
	format     = 1
	remembered = 32 // changes that a manifest remembers
)

// Claim shows the token t. Call Claim once for each grant, before the first read. Claim
// fails with a *fence.StaleError if a higher token was shown, with fence.ErrUnfenced for
// token zero, and with a *DamagedError; nothing was changed in these cases. After any
// other error the token may have been shown, and the caller may claim again. Claim
// repeats its attempt after conflicts and errors of the store until ctx ends.
func (m *Manifest) Claim(ctx context.Context, t fence.Token) error {
	return m.change(ctx, t, true, func(state []byte) ([]byte, error) { return state, nil })
}

// Read returns the state and the highest token shown. Before the first write the state
// is nil. A holder has lost its grant if Read returns a token above the holder's own.
func (m *Manifest) Read(ctx context.Context) (state []byte, t fence.Token, err error) {
	doc, _, err := m.get(ctx)
	return doc.State, doc.Token, err
}

// Do calls change with the present state and stores the result as the new state, under
// the claimed token t. After a conflict within the same grant, or when the store did not
// answer, Do reads the state and calls change again, until ctx ends. So change must have
// no side effects.
//
// Do returns change's own error; a *fence.StaleError if a higher token was shown; an
// error that matches fence.ErrNotClaimed if t was not; fence.ErrUnfenced, a *LimitError
// or a *DamagedError. Nothing was changed in these cases. An error that matches
// fence.ErrUnknown says that the change may have been made: the store did not answer, or
// more changes followed than a manifest remembers. Read the state again.
func (m *Manifest) Do(ctx context.Context, t fence.Token, change func(state []byte) ([]byte, error)) error {
	return m.change(ctx, t, false, change)
}

// An attempt is a put with an unknown outcome.
type attempt struct {
	id    string
	count int64 // of the manifest with the put
}

func (m *Manifest) change(ctx context.Context, t fence.Token, claim bool, change func([]byte) ([]byte, error)) error {
	switch {
	case t == 0:
		return fence.ErrUnfenced
	case t > math.MaxInt64:
		return &LimitError{"token", fmt.Sprintf("at most %d, the largest signed 64-bit integer", int64(math.MaxInt64))}
	}
	var tried []attempt
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		doc, version, err := m.get(ctx)
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			return err
		}
		if err == nil {
			done, unsure := judge(doc, tried)
			switch {
			case done:
				return nil
			case unsure:
				return m.unknown(fmt.Errorf("%d changes since", doc.Count-tried[0].count))
			case t < doc.Token:
				return &fence.StaleError{Token: t, Seen: doc.Token}
			case t > doc.Token && !claim:
				return fmt.Errorf("%w: the mark of %q is %d, below token %d", fence.ErrNotClaimed, m.key, doc.Token, t)
			case claim && t == doc.Token:
				return nil
			}
			var try attempt
			if try, err = m.put(ctx, doc, version, t, change); err == nil {
				return nil
			}
			var mine *ownError
			if errors.As(err, &mine) {
				if len(tried) > 0 && tried[len(tried)-1].count > doc.Count {
					return m.unknown(mine.error) // an earlier put may still happen
				}
				return mine.error
			}
			tried = append(tried, try)
		}
		if ctx.Err() == nil {
			timer := time.NewTimer(pause/2 + mrand.N(pause))
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
				timer.Stop()
			}
		}
		if len(tried) > 0 {
			return m.unknown(err)
		}
		return err
	}
}

func (m *Manifest) unknown(cause error) error {
	return fmt.Errorf("objectfence: %w: %w", fence.ErrUnknown, cause)
}

// judge reports in done whether the manifest contains an attempt. If the manifest no
// longer remembers the changes since the first attempt, unsure is true.
func judge(doc manifest, tried []attempt) (done, unsure bool) {
	for _, a := range tried {
		if slices.Contains(doc.Latest, a.id) {
			return true, false
		}
		// The change with this count is no longer among the latest.
		if a.count <= doc.Count-int64(len(doc.Latest)) {
			unsure = true
		}
	}
	return false, unsure
}

// ownError is an error of the caller's change, or a refusal of the new state. Nothing was
// put.
type ownError struct{ error }

// put makes one attempt.
func (m *Manifest) put(ctx context.Context, doc manifest, version string, t fence.Token, change func([]byte) ([]byte, error)) (attempt, error) {
	state, err := change(slices.Clone(doc.State))
	if err != nil {
		return attempt{}, &ownError{err}
	}
	if len(state) > MaxState {
		return attempt{}, &ownError{&LimitError{"state", fmt.Sprintf("at most %d bytes", MaxState)}}
	}
	doc.Format, doc.Token, doc.State = format, t, state
	doc.Count++
	try := attempt{rand.Text(), doc.Count}
	doc.Latest = append(slices.Clone(doc.Latest), try.id)
	doc.Latest = doc.Latest[max(0, len(doc.Latest)-remembered):]
	body, err := json.Marshal(doc)
	if err != nil {
		return attempt{}, &ownError{err}
	}
	_, err = m.store.Put(ctx, m.key, body, version)
	return try, err
}

// get reads the manifest. An absent manifest has the token zero.
func (m *Manifest) get(ctx context.Context) (doc manifest, version string, err error) {
	body, version, err := m.store.Get(ctx, m.key)
	if err != nil || version == "" {
		return manifest{}, "", err
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return manifest{}, "", &DamagedError{m.key, err.Error()}
	}
	if doc.Format != format || doc.Token == 0 || doc.Count < int64(len(doc.Latest)) || len(doc.Latest) > remembered {
		return manifest{}, "", &DamagedError{m.key, "not a manifest, or one of another version"}
	}
	return doc, version, nil
}

// The pauses between two attempts.
const (
	firstPause = time.Millisecond
	lastPause  = 500 * time.Millisecond
)
