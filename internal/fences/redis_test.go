//go:build unix

package fences

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
)

// recipes returns the Lua scripts of docs/fencing.md, by their names.
func recipes(tb testing.TB) map[string]string {
	tb.Helper()
	text, err := os.ReadFile("../../docs/fencing.md")
	if err != nil {
		tb.Fatal(err)
	}
	scripts := make(map[string]string)
	for _, found := range regexp.MustCompile("(?s)```lua\n-- (\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		scripts[found[1]] = found[2]
	}
	return scripts
}

// redisValue is a value in Redis, changed by the scripts of docs/fencing.md.
type redisValue struct {
	client       *goredis.Client
	claim, write string
	keys         []string
}

func (r *redisValue) Claim(ctx context.Context, t fence.Token) error {
	return r.eval(ctx, r.claim, t)
}

func (r *redisValue) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the script")
	return r.eval(ctx, r.write, t, value)
}

func (r *redisValue) Delete(ctx context.Context, t fence.Token) error { return r.Write(ctx, t, "") }

func (r *redisValue) eval(ctx context.Context, script string, t fence.Token, args ...any) error {
	if t == 0 {
		return fence.ErrUnfenced
	}
	answer, err := r.client.Eval(ctx, script, r.keys, append([]any{t.String()}, args...)...).Text()
	if err != nil || answer == "OK" {
		return err
	}
	seen, err := fence.ParseToken(answer)
	if err != nil {
		return err
	}
	return &fence.StaleError{Token: t, Seen: seen}
}

func (r *redisValue) Read(ctx context.Context) (string, error) {
	value, err := r.client.Get(ctx, r.keys[1]).Result()
	if errors.Is(err, goredis.Nil) {
		return "", nil
	}
	return value, err
}

func (r *redisValue) Reopen(testing.TB) fencetest.Resource { return r }

// newRedis returns an open function for values in Redis, and a client.
func newRedis(tb testing.TB) (*goredis.Client, func(testing.TB) fencetest.Resource) {
	tb.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", redis.require(tb)), MaxRetries: -1})
	tb.Cleanup(func() { _ = client.Close() })
	scripts := recipes(tb)
	if scripts["claim"] == "" || scripts["write"] == "" {
		tb.Fatalf("docs/fencing.md has the scripts %v", scripts)
	}
	return client, func(testing.TB) fencetest.Resource {
		n := keys.Add(1)
		return &redisValue{client: client, claim: scripts["claim"], write: scripts["write"],
			keys: []string{fmt.Sprintf("fence:{doc:%d}", n), fmt.Sprintf("{doc:%d}", n)}}
	}
}

func TestRedis(t *testing.T) {
	_, open := newRedis(t)
	fencetest.Run(t, open)
}

// One holder's writes in turns, as BenchmarkHolder.
func BenchmarkRedis(b *testing.B) {
	client, open := newRedis(b)
	r := open(b)
	bare := func(value string) error { return client.Set(b.Context(), "bare", value, 0).Err() }
	holder(b, bare, r)
}
