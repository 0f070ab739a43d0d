package logging

import (
	"sync"
	"time"
)

// Limiter decides how many of many equal lines are written. Of each key a number of
// lines pass at once, and later lines after pauses that double from least to most.
// A key without a call for longer than most begins anew. Its methods may be called
// from any goroutine.
type Limiter struct {
	burst       int
	least, most time.Duration

	mu   sync.Mutex
	keys map[string]*repeated
}

// repeated is a Limiter's memory of a key.
type repeated struct {
	passed int // since the key began anew
	left   int // lines not written since the last written line
	pause  time.Duration
	next   time.Time // no line passes before
	called time.Time
}

// maxKeys bounds a Limiter's memory: beyond, the key that was called longest ago is
// forgotten, so that a flood of new keys silences no other key for ever.
const maxKeys = 256

// NewLimiter returns a Limiter. The first burst lines of a key pass; burst is at
// least 1.
func NewLimiter(burst int, least, most time.Duration) *Limiter {
	return &Limiter{burst: burst, least: least, most: most, keys: make(map[string]*repeated)}
}

// Pass reports whether a line of the key is to be written now. If so, left is the
// number of lines of the key that were not written since the last written line.
func (l *Limiter) Pass(key string) (left int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.keys[key]
	if r == nil || now.Sub(r.called) > l.most {
		if r == nil && len(l.keys) >= maxKeys {
			l.forget()
		}
		r = &repeated{}
		l.keys[key] = r
	}
	r.called = now
	if r.passed >= l.burst && now.Before(r.next) {
		r.left++
		return 0, false
	}
	if r.passed++; r.passed >= l.burst {
		r.pause = min(max(2*r.pause, l.least), l.most)
		r.next = now.Add(r.pause)
	}
	left, r.left = r.left, 0
	return left, true
}

// forget removes the key that was called longest ago. The caller holds l.mu.
func (l *Limiter) forget() {
	var oldest string
	for key, r := range l.keys {
		if o := l.keys[oldest]; o == nil || r.called.Before(o.called) {
			oldest = key
		}
	}
	delete(l.keys, oldest)
}
