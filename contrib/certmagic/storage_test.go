package certmagicwardmote_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/wardmote/wardmote"
	certmagicwardmote "github.com/wardmote/wardmote/contrib/certmagic"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// authority is an ACME server: the pebble of Let's Encrypt, in this process. It believes
// every challenge.
type authority struct {
	*httptest.Server
	roots  *x509.CertPool
	orders atomic.Int64 // requests for new orders

	// beforeOrder is called in each request for a new order.
	beforeOrder func(n int64)
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_VA_ALWAYS_VALID", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	front := wfe.New(quiet, store, va.New(quiet, 0, 0, false, "", store), issuer, []string{"pebble.test"}, false, false, 1, 1)
	a := &authority{roots: x509.NewCertPool()}
	handler := front.Handler()
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/order-plz") {
			n := a.orders.Add(1)
			if a.beforeOrder != nil {
				a.beforeOrder(n)
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	a.roots.AddCert(a.Certificate())
	return a
}

// site is a process with a certmagic of its own.
func (a *authority) site(t *testing.T, storage certmagic.Storage) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: zap.NewNop()})
	config.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA:           a.URL + wfe.DirectoryPath,
		TrustedRoots: a.roots,
		Email:        "webmaster@example.com",
		Agreed:       true,
		DNS01Solver:  believed{},
		Logger:       zap.NewNop(),
	})}
	return config
}

// believed is a solver for an authority that does not look.
type believed struct{}

func (believed) Present(context.Context, acme.Challenge) error { return nil }
func (believed) CleanUp(context.Context, acme.Challenge) error { return nil }

// files is a storage without locks, as an object store has none.
type files struct{ *certmagic.FileStorage }

var errNoLocks = errors.New("this storage has no locks")

func (files) Lock(context.Context, string) error   { return errNoLocks }
func (files) Unlock(context.Context, string) error { return errNoLocks }

// processes returns clients of a cluster in real time, which is ready at once. Each stands
// for a process.
func processes(t *testing.T, n int) (clients []*locks.Client) {
	t.Helper()
	first, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Node().Stop() })
	for range n {
		clients = append(clients, locks.New(first.Node(), locks.Options{}))
	}
	return clients
}

// Two processes want the same certificates at the same time. Each certificate is ordered
// once, and both processes have it.
func TestTwoIssuersOrderEachCertificateOnce(t *testing.T) {
	clients := processes(t, 2)
	a := newAuthority(t)
	shared := files{&certmagic.FileStorage{Path: t.TempDir()}}
	names := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"}
	var g errgroup.Group
	for _, client := range clients {
		site := a.site(t, certmagicwardmote.Wrap(shared, client, certmagicwardmote.Options{}))
		for _, name := range names {
			g.Go(func() error { return site.ManageSync(t.Context(), []string{name}) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := a.orders.Load(); n != int64(len(names)) {
		t.Errorf("%d orders for %d certificates", n, len(names))
	}
	for range clients[0].List(t.Context(), "") {
		t.Error("a key is held at the end")
	}
}

// The process that orders the certificate hangs, and its session ends. The other process
// waits for that, and orders the certificate. Lease and unlock of the first know of the
// loss.
func TestTheNextIssuerTakesOver(t *testing.T) {
	clients := processes(t, 2)
	a := newAuthority(t)
	shared := files{&certmagic.FileStorage{Path: t.TempDir()}}
	first, stop := context.WithCancel(t.Context())
	defer stop()
	ordering := make(chan bool)
	a.beforeOrder = func(n int64) {
		if n == 1 {
			close(ordering)
			<-first.Done() // a process that hangs reads no answer
		}
	}
	lost := make(chan *locks.LostError, 1)
	hangs := certmagicwardmote.Wrap(shared, clients[0], certmagicwardmote.Options{OnLost: func(err *locks.LostError) { lost <- err }})
	ended := make(chan error, 1)
	go func() { ended <- a.site(t, hangs).ObtainCertSync(first, "example.com") }()
	<-ordering
	next := make(chan error, 1)
	go func() {
		next <- a.site(t, certmagicwardmote.Wrap(shared, clients[1], certmagicwardmote.Options{})).ManageSync(t.Context(), []string{"example.com"})
	}()
	const lock = "issue_cert_example.com"
	waits := false
	for status, err := range clients[1].Watch(t.Context(), "certmagic/"+lock) {
		if err != nil {
			t.Fatal(err)
		}
		if waits = len(status.Waiters) == 1; waits {
			break
		}
	}
	if !waits || a.orders.Load() != 1 {
		t.Errorf("%d orders while the first goes on", a.orders.Load())
	}
	for session, err := range clients[1].Sessions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if session.Keys == 1 {
			if err := clients[1].EndSession(t.Context(), session.Ref); err != nil {
				t.Fatal(err)
			}
		}
	}
	if loss := <-lost; loss.Key != "certmagic/"+lock || loss.Reason != locks.SessionEnded {
		t.Errorf("OnLost was told of %v", loss)
	}
	if err := hangs.RenewLockLease(t.Context(), lock, time.Minute); !errors.Is(err, locks.ErrLost) {
		t.Errorf("a lost lock was renewed: %v", err)
	}
	if err := <-next; err != nil {
		t.Errorf("the next process: %v", err)
	}
	if n := a.orders.Load(); n != 2 {
		t.Errorf("%d orders, want the one cut short and the next", n)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the process that hung has obtained a certificate")
	}
}

// locked is a wrapped storage of which the tests use the locks alone.
func locked(c *lockstest.Cluster, i int, opts certmagicwardmote.Options) *certmagicwardmote.Storage {
	return certmagicwardmote.Wrap(files{}, c.Client(i), opts)
}

func TestLocksByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), lockstest.New(t, 3)
		s, other := locked(c, 0, certmagicwardmote.Options{}), locked(c, 1, certmagicwardmote.Options{})
		if err := s.Lock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if ok, err := other.TryLock(ctx, "a"); ok || err != nil {
			t.Errorf("TryLock of a taken lock: %v, %v", ok, err)
		}
		if ok, err := s.TryLock(ctx, "a"); ok || err != nil {
			t.Errorf("TryLock of an own lock: %v, %v", ok, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := other.Lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait for a taken lock: %v", err)
		}
		if err := s.RenewLockLease(ctx, "a", time.Hour); err != nil {
			t.Errorf("a held lock was not renewed: %v", err)
		}
		gone, end := context.WithCancel(ctx)
		end()
		if err := s.Unlock(gone, "a"); err != nil {
			t.Errorf("Unlock after the end of its ctx: %v", err)
		}
		if ok, err := other.TryLock(ctx, "a"); !ok || err != nil {
			t.Errorf("TryLock of a free lock: %v, %v", ok, err)
		}
		for _, err := range []error{s.Unlock(ctx, "a"), s.RenewLockLease(ctx, "a", 0)} {
			if !errors.Is(err, certmagicwardmote.ErrNotHeld) {
				t.Errorf("without the lock: %v", err)
			}
		}
		if err := other.Unlock(ctx, "a"); err != nil {
			t.Error(err)
		}
		if _, err := s.TryLock(canceled(ctx), "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("TryLock after the end of ctx: %v", err)
		}
	})
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A lock is lost, and another goroutine of the same process takes it. The Unlock of the
// first does not free the lock of the second.
func TestALateUnlockFreesNoOtherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), lockstest.New(t, 3)
		var lost []*locks.LostError
		s := locked(c, 0, certmagicwardmote.Options{Prefix: "tls/", OnLost: func(err *locks.LostError) { lost = append(lost, err) }})
		if err := s.Lock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		_, h, _ := c.Holder("tls/a")
		if err := c.Client(1).Break(ctx, "tls/a", h.Token); err != nil {
			t.Fatal(err)
		}
		if len(lost) != 1 || lost[0].Reason != locks.Broken {
			t.Errorf("OnLost was told of %v", lost)
		}
		if err := s.Lock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if err := s.Unlock(ctx, "a"); err != nil {
			t.Errorf("Unlock of the lost lock: %v", err)
		}
		if i, _, ok := c.Holder("tls/a"); !ok || i != 0 {
			t.Error("the Unlock of the lost lock freed the next one")
		}
		if err := s.Unlock(ctx, "a"); err != nil {
			t.Error(err)
		}
		if _, _, ok := c.Holder("tls/a"); ok {
			t.Error("the lock is held after both Unlocks")
		}
	})
}
