package locks

import (
	"bytes"
	"context"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
)

// labelsOf returns the profile labels of the goroutines that run the function marked.
func labelsOf(t *testing.T, marked string) (labels []string) {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	// A paragraph for each kind of goroutine: "1 @ addresses", "# labels: {…}", its frames.
	for text := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(text, marked) {
			continue
		}
		line := ""
		for l := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(l, "# labels: "); ok {
				line = strings.TrimSpace(rest)
			}
		}
		labels = append(labels, line)
	}
	slices.Sort(labels)
	return labels
}

//go:noinline
func markedWork(begun chan<- struct{}, end <-chan struct{}) {
	begun <- struct{}{}
	<-end
}

func TestWorksHaveProfileLabels(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		ctx := pprof.WithLabels(bg, pprof.Labels("mine", "1"))
		begun, end := make(chan struct{}), make(chan struct{})
		work := func(ctx context.Context, l *Lock) error {
			go markedWork(begun, end) // has the labels too
			markedWork(begun, end)
			if mine, _ := pprof.Label(ctx, "mine"); mine != "1" {
				t.Error("the context has lost the caller's label")
			}
			return Final(nil)
		}
		for _, tt := range []struct {
			call func() error
			want string
		}{
			{func() error { return c.Do(ctx, "order/17", work) }, `{"mine":"1", "wardmote_call":"Do"}`},
			{func() error { return c.Elect(ctx, "leader", work) }, `{"mine":"1", "wardmote_call":"Elect", "wardmote_key":"leader"}`},
			{func() error {
				return c.Spread(ctx, "a/b", 1, func(ctx context.Context, shard int, l *Lock) error { return work(ctx, l) })
			}, `{"mine":"1", "wardmote_call":"Spread", "wardmote_name":"a/b", "wardmote_shard":"0"}`},
		} {
			call := start(func() (struct{}, error) { return struct{}{}, tt.call() })
			<-begun
			<-begun
			labels := labelsOf(t, "locks.markedWork")
			if len(labels) == 0 || slices.ContainsFunc(labels, func(l string) bool { return l != tt.want }) {
				t.Errorf("labels %q, want %s", labels, tt.want)
			}
			end <- struct{}{}
			end <- struct{}{}
			<-call.done
		}
	})
}

func BenchmarkLabels(b *testing.B) {
	l := &Lock{g: &grant{call: CallElect, key: "leader"}}
	for b.Loop() {
		_ = runLabelled(bg, l, func(context.Context, *Lock) error { return nil })
	}
}
