package fencetest_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
)

// inProcess is a value behind a fence.Guard.
type inProcess struct {
	guard fence.Guard
	mu    sync.Mutex // of readers
	value string
}

func (r *inProcess) Claim(_ context.Context, t fence.Token) error { return r.guard.Claim(t) }

func (r *inProcess) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the guard")
	return r.guard.Do(t, func() error {
		fencetest.Pause(ctx, "inside the guard")
		r.set(value)
		fencetest.Pause(ctx, "after the write")
		return nil
	})
}

func (r *inProcess) Delete(ctx context.Context, t fence.Token) error { return r.Write(ctx, t, "") }

func (r *inProcess) Read(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, nil
}

func (r *inProcess) set(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = value
}

func TestGuard(t *testing.T) {
	fencetest.Run(t, func(testing.TB) fencetest.Resource { return new(inProcess) })
}

// onDisk is a value behind a fence.File. Handles with the same path share the value.
type onDisk struct {
	path  string
	guard *fence.File
	*inProcess
}

func openFile(tb testing.TB, path string, value *inProcess) *onDisk {
	tb.Helper()
	f, err := fence.OpenFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return &onDisk{path: path, guard: f, inProcess: value}
}

func (r *onDisk) Claim(_ context.Context, t fence.Token) error { return r.guard.Claim(t) }

func (r *onDisk) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the guard")
	return r.guard.Do(t, func() error {
		fencetest.Pause(ctx, "inside the guard")
		r.set(value)
		return nil
	})
}

func (r *onDisk) Delete(ctx context.Context, t fence.Token) error { return r.Write(ctx, t, "") }

func (r *onDisk) Reopen(tb testing.TB) fencetest.Resource {
	return openFile(tb, r.path, r.inProcess)
}

func TestFile(t *testing.T) {
	fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
		return openFile(tb, filepath.Join(tb.TempDir(), "mark"), new(inProcess))
	})
}
