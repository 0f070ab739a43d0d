//go:build unix

package fences

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/wardmote/wardmote/examples/stores/s3store"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
	"github.com/wardmote/wardmote/fence/objectfence"
)

const (
	s3Module  = "testdata/s3server"
	s3Package = "github.com/versity/versitygw/cmd/versitygw"
	s3Secret  = "wardmote"
	s3Bucket  = "fences"
)

// objects is a server that speaks S3, and keeps objects as files. No package of a
// distribution has one: the server is built from its source, in the version of s3Module.
var objects = &server{
	name: "s3",
	start: func(dir string, port int) (*exec.Cmd, error) {
		program := filepath.Join(dir, "versitygw")
		build := exec.Command("go", "build", "-o", program, s3Package)
		build.Dir = s3Module
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
		if err := run(build); err != nil {
			return nil, fmt.Errorf("%w: %w", exec.ErrNotFound, err) // on a host without a network
		}
		data := filepath.Join(dir, "data")
		if err := os.MkdirAll(filepath.Join(data, s3Bucket), 0o700); err != nil {
			return nil, err
		}
		cmd := exec.Command(program, "--quiet", "--port", fmt.Sprintf("127.0.0.1:%d", port),
			"--access", s3Secret, "--secret", s3Secret, "posix", data)
		cmd.Dir = dir
		return cmd, nil
	},
	ready: func(port int) error {
		client := s3Client(fmt.Sprintf("http://127.0.0.1:%d", port), aws.NopRetryer{})
		_, err := client.HeadBucket(context.Background(), &s3.HeadBucketInput{Bucket: aws.String(s3Bucket)})
		return err
	},
}

// s3Client returns a client; the retryer nil is the SDK's own.
func s3Client(endpoint string, retryer aws.Retryer) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &endpoint,
		Region:       "us-east-1",
		UsePathStyle: true,
		Retryer:      retryer,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3Secret, SecretAccessKey: s3Secret}, nil
		}),
	})
}

// A lossy is a proxy before the S3 server that can lose the answer to a put: the server
// has made the put, and the connection breaks.
type lossy struct {
	*httptest.Server
	lose atomic.Int32 // answers
	puts atomic.Int32 // that were made
}

func newLossy(tb testing.TB) *lossy {
	tb.Helper()
	to := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", objects.require(tb))}
	l := new(lossy)
	l.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the signature is of this name
		},
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.Method != http.MethodPut || answer.StatusCode != http.StatusOK {
				return nil
			}
			l.puts.Add(1)
			if l.lose.Add(-1) >= 0 {
				return io.ErrUnexpectedEOF
			}
			l.lose.Store(0)
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	tb.Cleanup(l.Close)
	return l
}

// object is a manifest in a bucket.
type object struct {
	*objectfence.Manifest
	store *watched
	key   string
	line  *lossy
}

func newObject(tb testing.TB, store *watched, key string, line *lossy) object {
	tb.Helper()
	m, err := objectfence.New(store, key)
	if err != nil {
		tb.Fatal(err)
	}
	return object{m, store, key, line}
}

func (o object) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the read")
	return o.Do(ctx, t, func([]byte) ([]byte, error) { return []byte(value), nil })
}

func (o object) Delete(ctx context.Context, t fence.Token) error { return o.Write(ctx, t, "") }

func (o object) Read(ctx context.Context) (string, error) {
	body, _, err := o.Manifest.Read(ctx)
	return string(body), err
}

func (o object) Reopen(tb testing.TB) fencetest.Resource {
	return newObject(tb, o.store, o.key, o.line)
}

func (o object) LoseAnswer() { o.line.lose.Store(1) }

// watched stops where the suite asks, and keeps the outcomes of puts.
type watched struct {
	objectfence.Store
	mu   sync.Mutex
	puts []error
}

func (w *watched) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	fencetest.Pause(ctx, "before the put")
	next, err := w.Store.Put(ctx, key, body, version)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.puts = append(w.puts, err)
	return next, err
}

// The SDK as people use it, which tries again by itself, and one that does not.
var retryers = []struct {
	name string
	aws.Retryer
}{
	{"the SDK tries again by itself", nil},
	{"the SDK tries once", aws.NopRetryer{}},
}

func TestS3(t *testing.T) {
	for _, r := range retryers {
		t.Run(r.name, func(t *testing.T) {
			line := newLossy(t)
			store := &watched{Store: s3store.Store{Client: s3Client(line.URL, r.Retryer), Bucket: s3Bucket}}
			fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
				return newObject(tb, store, fmt.Sprint("doc/", keys.Add(1)), line)
			})
		})
	}
}

// The SDK's own retry reports a put that was made as a conflict. The change is made once,
// and the holder is not told that another writer was there.
func TestTheSDKReportsItsOwnPutAsAConflict(t *testing.T) {
	for _, claim := range []bool{true, false} {
		t.Run(fmt.Sprint("claim: ", claim), func(t *testing.T) {
			line := newLossy(t)
			store := &watched{Store: s3store.Store{Client: s3Client(line.URL, nil), Bucket: s3Bucket}}
			o := newObject(t, store, fmt.Sprint("doc/", keys.Add(1)), line)
			step := func() error { return o.Claim(t.Context(), 7) }
			want, puts := "", int32(1)
			if !claim {
				if err := step(); err != nil {
					t.Fatal(err)
				}
				step = func() error {
					return o.Do(t.Context(), 7, func(b []byte) ([]byte, error) { return append(b, 'a'), nil })
				}
				want, puts = "a", 2
			}
			store.puts = nil
			o.LoseAnswer()
			if err := step(); err != nil {
				t.Errorf("a put that was made: %v", err)
			}
			if len(store.puts) != 1 || !errors.Is(store.puts[0], objectfence.ErrConflict) {
				t.Errorf("the SDK reports %v, and not a conflict: the test tests nothing", store.puts)
			}
			text, err := o.Read(t.Context())
			if err != nil || text != want || line.puts.Load() != puts {
				t.Errorf("the state is %q after %d puts: %v", text, line.puts.Load(), err)
			}
		})
	}
}

// The answers of the server that the store tells apart.
func TestS3Answers(t *testing.T) {
	line := newLossy(t)
	client := s3Client(line.URL, aws.NopRetryer{})
	store := s3store.Store{Client: client, Bucket: s3Bucket}
	ctx, key := t.Context(), fmt.Sprint("doc/", keys.Add(1))
	if body, version, err := store.Get(ctx, key); body != nil || version != "" || err != nil {
		t.Errorf("no object: %q, %q, %v", body, version, err)
	}
	one, err := store.Put(ctx, key, []byte("one"), "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := store.Put(ctx, key, []byte("two"), one)
	if err != nil {
		t.Fatal(err)
	}
	if body, version, err := store.Get(ctx, key); string(body) != "two" || version != two || err != nil {
		t.Errorf("after two puts: %q, %q, %v", body, version, err)
	}
	for _, version := range []string{"", one} {
		if _, err := store.Put(ctx, key, []byte("three"), version); !errors.Is(err, objectfence.ErrConflict) {
			t.Errorf("a put on version %q: %v", version, err)
		}
	}
	if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(s3Bucket), Key: &key}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, key, []byte("three"), two); !errors.Is(err, objectfence.ErrConflict) {
		t.Errorf("a put on a version that was deleted: %v", err)
	}
	// A wrong bucket is no empty store, and no conflict.
	store.Bucket = "none"
	if _, _, err := store.Get(ctx, key); err == nil {
		t.Error("Get from a bucket that is not there finds no object, and no error")
	}
	if _, err := store.Put(ctx, key, []byte("x"), ""); err == nil || errors.Is(err, objectfence.ErrConflict) {
		t.Errorf("a put into a bucket that is not there: %v", err)
	}
}

// unconditional is a server that ignores the conditions, as some that speak S3 do.
type unconditional struct{ s3store.Store }

func (u unconditional) Put(ctx context.Context, key string, body []byte, _ string) (string, error) {
	_, err := u.Client.PutObject(ctx, &s3.PutObjectInput{Bucket: &u.Bucket, Key: &key, Body: bytes.NewReader(body)})
	return "", err
}

// As TestStorm, in a bucket. The control is a server that ignores the conditions.
func TestStormInABucket(t *testing.T) {
	address := fmt.Sprintf("http://127.0.0.1:%d", objects.require(t))
	real := s3store.Store{Client: s3Client(address, nil), Bucket: s3Bucket}
	play := func(store objectfence.Store) fencetest.Result {
		result, err := fencetest.Storm(t, newObject(t, &watched{Store: store}, fmt.Sprint("doc/", keys.Add(1)), nil), 8, stormTime(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Log(result)
		return result
	}
	if err := play(real).Err(); err != nil {
		t.Error(err)
	}
	for round := 1; ; round++ {
		if control := play(unconditional{real}); control.Lost > 0 || control.Late > 0 {
			break
		}
		if round == 10 {
			t.Fatal("a store that ignores the condition has no fault: the storm proves nothing")
		}
	}
}
