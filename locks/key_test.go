package locks

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// listening is a member that notes the keys of its sessions, and their events.
type listening struct {
	*member
	mu   sync.Mutex
	keys []machine.SessionKey
	out  []string
}

func (l *listening) Claim(key machine.SessionKey) {
	l.mu.Lock()
	l.keys = append(l.keys, key)
	l.mu.Unlock()
	l.member.Claim(key)
}

func (l *listening) Attach(id machine.SessionID, sink func(machine.Event)) {
	l.member.Attach(id, func(e machine.Event) {
		l.note(e)
		sink(e)
	})
}

// note keeps everything that a print of v could show.
func (l *listening) note(v any) {
	text, _ := json.Marshal(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(l.out, fmt.Sprintf("%v %+v %#v %s %x", v, v, v, text, v))
}

// A session's key is in no answer, event, error, trace or log entry, and in no print of
// a client.
func TestASessionsKeyIsShownNowhere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := &listening{member: w.join("n")}
		trace := &Trace{
			SessionOpened: func(_ context.Context, ttl time.Duration) { l.note(ttl) },
			SessionLost:   func(_ context.Context, r Reason) { l.note(r) },
			Acquired:      func(_ context.Context, e LockEvent) { l.note(e) },
			Lost:          func(_ context.Context, e LockEvent) { l.note(e) },
		}
		c := newClient(l, Options{Name: "a", Trace: trace})
		other, _ := w.client(t, "b")
		lock := acquire(t, c, "k")
		wait := waiting(t, bg, other, "k")
		status, err := other.Inspect(bg, "k")
		l.note(status)
		l.note(err)
		_, err = other.TryAcquire(bg, "k")
		l.note(err)
		l.note(other.Ask(bg, "k"))
		session := c.currentSession()
		release(t, lock)
		release(t, wait.ok(t))
		for _, cmd := range w.Applied() {
			l.note(cmd)
			l.note(machine.EncodeCommand(cmd))
		}
		w.Apply(expire(w, c))
		settle()
		shutdown(t, c)
		settle() // nothing changes what is printed now
		for _, v := range []any{c, *lock, lock, session, c.opts, wire.AttachRequest{Keys: l.keys, New: l.keys}, l.keys[0], &l.keys[0]} {
			l.note(v)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.keys) == 0 || len(l.out) < 20 {
			t.Fatalf("%d keys, %d prints", len(l.keys), len(l.out))
		}
		for _, key := range l.keys {
			decimal := strings.Trim(fmt.Sprint(key[:8]), "[]")
			for _, secret := range []string{
				string(key[:8]), hex.EncodeToString(key[:8]), base64.StdEncoding.EncodeToString(key[:9]),
				decimal, strings.ReplaceAll(decimal, " ", ","), strings.Trim(fmt.Sprintf("%#v", key[:8]), "[]byte{}"),
			} {
				for _, out := range l.out {
					if strings.Contains(out, secret) {
						t.Fatalf("the key is shown as %q in %.300q", secret, out)
					}
				}
			}
		}
	})
}
