//go:build unix

package docs

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the tables that tests compute")

// limit is a row of capacity.md: a constant of the source, and the consequence for a
// program that goes beyond the constant.
type limit struct {
	what string
	// number is the constant's package, from the root of the repository, and its name.
	number string
	unit   func(n int64) string
	beyond string

	// try is a call that uses n, and refused says whether the error is the one in beyond. A
	// nil try: tests of the constant's package reach the limit.
	try     func(ctx context.Context, c *locks.Client, n int) error
	refused func(error) bool
}

// field reports whether an error is a *cluster.ConfigError of a field.
func field(name string) func(error) bool {
	return func(err error) bool {
		var bad *cluster.ConfigError
		return errors.As(err, &bad) && bad.Field == name
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func count64(n int64) string { // 16384 as 16,384
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return count64(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return count64(n>>10) + " KiB"
	}
	return count64(n) + " bytes"
}

func milliseconds(n int64) string {
	if n >= 1000 {
		return fmt.Sprintf("%d h", n/3_600_000)
	}
	return fmt.Sprintf("%d ms", n)
}

func acquire(ctx context.Context, c *locks.Client, key string, o ...locks.Option) error {
	l, err := c.Acquire(ctx, key, o...)
	if err == nil {
		err = l.Release(ctx)
	}
	return err
}

func long(n int) string { return strings.Repeat("k", n) }

func manyKeys(n, length int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%0*d", length, i))
	}
	return keys
}

// limits are the rows, by their tables.
var limits = map[string][]limit{
	"Keys and locks": {
		{"a key", "internal/machine.MaxKey", size, "`cluster.ConfigError` of `key`",
			func(ctx context.Context, c *locks.Client, n int) error { return acquire(ctx, c, long(n)) }, field("key")},
		{"keys of one `AcquireAll`", "internal/machine.MaxKeys", count64, "`cluster.ConfigError` of `keys`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return acquireAll(ctx, c, manyKeys(n, 8))
			}, field("keys")},
		{"bytes of these keys", "internal/machine.MaxKeyBytes", size, "`cluster.ConfigError` of `keys`",
			func(ctx context.Context, c *locks.Client, n int) error {
				keys := manyKeys(n/512, 512)
				if rest := n % 512; rest > 0 {
					keys = append(keys, long(rest))
				}
				return acquireAll(ctx, c, keys)
			}, field("keys")},
		{"keys that a client holds and waits for", "internal/machine.MaxHeld", count64, "`locks.ErrTooManyKeys`: make another client of the node",
			func(ctx context.Context, c *locks.Client, n int) error {
				c = locks.New(c.Node(), locks.Options{})
				defer c.Close(ctx)
				for i := 0; i < n; i += 1000 {
					var keys []string
					for k := range min(1000, n-i) {
						keys = append(keys, fmt.Sprint("held-", i+k))
					}
					if _, err := c.AcquireAll(ctx, keys); err != nil {
						return err
					}
				}
				return nil
			}, is(locks.ErrTooManyKeys)},
		{"bytes of the keys and metas of a client", "internal/machine.MaxHeldBytes", size, "`locks.ErrTooManyKeys`", nil, nil},
		{"waiters of a key", "internal/machine.MaxWaiters", count64, "`locks.ErrTooManyWaiters`; `locks.MaxWaiters` asks for fewer", nil, nil},
		{"shared holders of a key", "internal/machine.MaxHolders", count64, "the next one waits", nil, nil},
		{"permits of a key", "internal/machine.MaxHolders", count64, "`cluster.ConfigError` of `of`",
			func(ctx context.Context, c *locks.Client, n int) error { return c.SetCapacity(ctx, "pool", n) }, field("of")},
		{"keys with a capacity set by `SetCapacity`", "internal/machine.MaxCapacities", count64, "`locks.ErrTooManyCapacities`", nil, nil},
		{"meta of a lock or a client, encoded", "internal/machine.MaxMeta", size, "`cluster.ConfigError` of `Meta`, or of `Options.Meta`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return acquire(ctx, c, "k", locks.Meta(map[string]string{"m": long(n)})) // a few bytes of encoding
			}, field("Meta")},
		{"name of a client", "internal/machine.MaxName", size, "`cluster.ConfigError` of `Options.Name`",
			func(ctx context.Context, c *locks.Client, n int) error {
				other := locks.New(c.Node(), locks.Options{Name: long(n)})
				defer other.Close(ctx)
				return acquire(ctx, other, "k")
			}, field("Options.Name")},
		{"locks of one `Reentrant` owner for a key", "locks.MaxDepth", count64, "`cluster.ConfigError` of `Reentrant`", nil, nil},
		{"held locks among a context's ancestors", "internal/machine.MaxUnder", count64, "`cluster.ConfigError` of `ctx`", nil, nil},
		{"`Priority`, either way", "locks.maxPriority", count64, "`cluster.ConfigError` of `Priority`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return acquire(ctx, c, "k", locks.Priority(n))
			}, field("Priority")},
		{"`Delay`", "internal/machine.MaxDelay", milliseconds, "`cluster.ConfigError` of `Delay`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return acquire(ctx, c, "k", locks.Delay(time.Duration(n)*time.Millisecond))
			}, field("Delay")},
		{"last tokens of free keys, for `IfToken`", "internal/machine.MaxPast", count64, "the oldest are forgotten: `locks.ErrTooOld`", nil, nil},
	},
	"Values": {
		{"a value", "internal/machine.MaxValue", size, "`cluster.ConfigError` of `value`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return c.Do(ctx, "k", func(ctx context.Context, l *locks.Lock) error {
					return l.SetValue(ctx, make([]byte, n))
				})
			}, field("value")},
		{"values", "internal/machine.MaxValues", count64, "`locks.ErrValuesFull`", nil, nil},
		{"bytes of values", "internal/machine.MaxValuesSize", size, "`locks.ErrValuesFull`", nil, nil},
		{"an id of `Once`", "locks.maxOnceID", size, "`cluster.ConfigError` of `id`",
			func(ctx context.Context, c *locks.Client, n int) error {
				_, err := c.Once(ctx, long(n), func(context.Context) ([]byte, error) { return nil, nil })
				return err
			}, field("id")},
		{"a result of `Once`", "locks.maxOnceResult", size, "`cluster.ConfigError` of `result`; the id is used up",
			func(ctx context.Context, c *locks.Client, n int) error {
				_, err := c.Once(ctx, fmt.Sprint("result-", n), func(context.Context) ([]byte, error) { return make([]byte, n), nil })
				return err
			}, field("result")},
		{"results of `Once`", "internal/machine.MaxFading", count64, "the oldest are forgotten, and their ids may run again", nil, nil},
		{"bytes of results", "internal/machine.MaxFadingSize", size, "the same", nil, nil},
	},
	"Shards": {
		{"shards of a name", "internal/machine.MaxShards", count64, "`cluster.ConfigError` of `shards`",
			func(ctx context.Context, c *locks.Client, n int) error { return spread(ctx, c, "s", n) }, field("shards")},
		{"a name of `Spread`", "internal/machine.MaxGroupName", size, "`cluster.ConfigError` of `name`",
			func(ctx context.Context, c *locks.Client, n int) error { return spread(ctx, c, long(n), 1) }, field("name")},
		{"`Weight`", "internal/machine.MaxWeight", count64, "`cluster.ConfigError` of `Weight`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return spread(ctx, c, "w", 1, locks.Weight(n))
			}, field("Weight")},
		{"`Drain` and `Grace`", "internal/machine.MaxGrace", milliseconds, "`cluster.ConfigError` of `Drain` or `Grace`",
			func(ctx context.Context, c *locks.Client, n int) error {
				return spread(ctx, c, "g", 1, locks.Grace(time.Duration(n)*time.Millisecond))
			}, field("Grace")},
		{"names of one client", "internal/machine.MaxEnlisted", count64, "`locks.ErrTooManyCallers`", nil, nil},
		{"callers of a name", "internal/machine.MaxCallers", count64, "`locks.ErrTooManyCallers`", nil, nil},
		{"callers of a name in one member", "internal/machine.MaxNodeCallers", count64, "`locks.ErrTooManyCallers`", nil, nil},
		{"names", "internal/machine.MaxGroups", count64, "`locks.ErrTooManyCallers`", nil, nil},
		{"shards of all names", "internal/machine.MaxAllShards", count64, "`locks.ErrTooManyCallers`", nil, nil},
	},
	"Members": {
		{"voters", "internal/founding.maxVoters", count64, "`cluster.ConfigError` of `Config.Voting.Voters`",
			start(func(cfg *cluster.Config, n int) { cfg.Voting.Voters = n }), field("Config.Voting.Voters")},
		{"`InitialSize`", "cluster.maxFounding", count64, "`cluster.ConfigError` of `Config.InitialSize`",
			start(func(cfg *cluster.Config, n int) { cfg.InitialSize = n }), field("Config.InitialSize")},
		{"names in `Founders`", "cluster.maxFounding", count64, "`cluster.ConfigError` of `Config.Founders`",
			start(func(cfg *cluster.Config, n int) {
				cfg.InitialSize = 0
				for i := range n {
					cfg.Founders = append(cfg.Founders, fmt.Sprint("m", i))
				}
			}), field("Config.Founders")},
		{"a name of a member or a cluster", "internal/member.MaxName", size, "`cluster.ConfigError` of `Config.Name` or `Config.Cluster`",
			start(func(cfg *cluster.Config, n int) { cfg.Name = long(n) }), field("Config.Name")},
		{"the longest TTL", "internal/machine.MaxTTL", milliseconds, "`cluster.ConfigError` of `Config.TTL`",
			start(func(cfg *cluster.Config, n int) { cfg.TTL = time.Duration(n) * time.Millisecond }), field("Config.TTL")},
		{"the shortest TTL", "internal/machine.MinTTL", milliseconds, "`cluster.ConfigError` of `Config.TTL`, or of `Options.TTL`",
			start(func(cfg *cluster.Config, n int) { cfg.TTL = time.Duration(n) * time.Millisecond }), field("Config.TTL")},
		{"secrets known at a time", "cluster.maxSecrets", count64, "`cluster.ConfigError` of `Config.Security.Secrets`",
			start(func(cfg *cluster.Config, n int) {
				for range n {
					cfg.Security.Secrets = append(cfg.Security.Secrets, cluster.NewSecret())
				}
			}), field("Config.Security.Secrets")},
		{"the shortest secret", "cluster.minSecret", size, "`cluster.ConfigError` of `Config.Security.Secrets`",
			start(func(cfg *cluster.Config, n int) {
				cfg.Security.Secrets = [][]byte{cluster.NewSecret()[:n]}
			}), field("Config.Security.Secrets")},
		{"the longest secret", "cluster.maxSecret", size, "`cluster.ConfigError` of `Config.Security.Secrets`",
			start(func(cfg *cluster.Config, n int) {
				cfg.Security.Secrets = [][]byte{bytes.Repeat(cluster.NewSecret(), n/32+1)[:n]}
			}), field("Config.Security.Secrets")},
		{"processes that a member knows, the dead of the last minutes included", "internal/gossip.maxKnown", count64, "the next one is in nobody's list until there is room", nil, nil},
		{"of these, processes of one host", "internal/gossip.maxOfHost", count64, "the same", nil, nil},
		{"open clients of one member", "internal/machine.MaxNodeSessions", count64, "`locks.ErrQuota`", nil, nil},
		{"keys that all clients of one member hold and wait for", "internal/machine.MaxNodeHeld", count64, "`locks.ErrQuota`", nil, nil},
		{"bytes of these keys and metas", "internal/machine.MaxNodeHeldBytes", size, "`locks.ErrQuota`", nil, nil},
		{"waits of all clients of one member", "internal/machine.MaxNodeWaits", count64, "`locks.ErrQuota`", nil, nil},
		{"connections of a port", "internal/port.maxConns", count64, "an idle one gives way, or the new one is refused", nil, nil},
		{"of these, from processes that gossip does not know", "internal/port.maxNewcomers", count64, "the same", nil, nil},
		{"requests under way from a member", "internal/stream.MaxServing", count64, "the member sends the request again", nil, nil},
		{"requests that wait for the leader's log", "internal/term.maxProposals", count64, "the member sends the request again", nil, nil},
		{"of these, from one member", "internal/term.maxLane", count64, "the same", nil, nil},
		{"bytes of these requests", "internal/term.maxQueueBytes", size, "the same", nil, nil},
		{"of these, from one member", "internal/term.maxLaneBytes", size, "the same", nil, nil},
	},
	"The log and the store": {
		{"an entry of the log", "internal/term.maxEntryBytes", size, "the next entry takes the rest", nil, nil},
		{"requests in an entry", "internal/machine.MaxCommands", count64, "the same", nil, nil},
		{"entries since a snapshot that make the next one due", "internal/consensus.snapshotEntries", count64, "a snapshot", nil, nil},
		{"bytes of entries that make a snapshot due, at least", "internal/consensus.leastLog", size, "a snapshot", nil, nil},
		{"the same behind a large snapshot, at most", "internal/consensus.mostLog", size, "a snapshot", nil, nil},
		{"bytes of entries kept in front of a snapshot", "internal/consensus.trailingBytes", size, "a follower further behind gets the snapshot", nil, nil},
		{"stores of former clusters kept in a `Dir`", "internal/consensus.maxAside", count64, "the oldest is removed", nil, nil},
	},
}

func acquireAll(ctx context.Context, c *locks.Client, keys []string) error {
	l, err := c.AcquireAll(ctx, keys)
	if err == nil {
		err = l.Release(ctx)
	}
	return err
}

// spread calls Spread with an ended ctx: Spread judges its arguments before its ctx.
func spread(ctx context.Context, c *locks.Client, name string, shards int, o ...locks.SpreadOption) error {
	ended, end := context.WithCancel(ctx)
	end()
	return c.Spread(ended, name, shards, func(context.Context, int, *locks.Lock) error { return nil }, o...)
}

// start returns a try that checks a Config with a setting of n. No member starts.
func start(set func(cfg *cluster.Config, n int)) func(context.Context, *locks.Client, int) error {
	return func(_ context.Context, _ *locks.Client, n int) error {
		cfg := cluster.Config{Bind: "127.0.0.1:0", InitialSize: 3, Join: []string{"127.0.0.1:1"}}
		set(&cfg, n)
		return cfg.Check()
	}
}

// The limits in capacity.md are those of the source. Run with -rewrite after a change.
func TestTheTablesOfLimits(t *testing.T) {
	text, err := os.ReadFile("capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	known, source := knownErrors(t), make(sources)
	for title, rows := range limits {
		var table strings.Builder
		for _, l := range rows {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", l.what, l.unit(source.value(t, l.number)), l.beyond)
			for _, m := range regexp.MustCompile("`([a-z]+\\.(?:Err|[A-Za-z]*Error)[A-Za-z]*)`").FindAllStringSubmatch(l.beyond, -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s: there is no %s", l.what, m[1])
				}
			}
		}
		head := "### " + title + "\n\n| limit | value | beyond it |\n|---|---|---|\n"
		before, rest, ok := strings.Cut(string(text), head)
		end := strings.Index("\n"+rest, "\n\n") // of an empty table too
		if !ok || end < 0 {
			t.Errorf("no table %q", title)
			continue
		}
		if *rewrite {
			text = []byte(before + head + table.String() + rest[end:])
		} else if rest[:end] != table.String() {
			t.Errorf("the table %q is\n%s\nwant\n%s", title, rest[:end], &table)
		}
	}
	if *rewrite {
		if err := os.WriteFile("capacity.md", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Each limit can be reached, and the step beyond the limit has the error of the table.
func TestEachLimitHasItsError(t *testing.T) {
	c, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source := make(sources)
	for title, rows := range limits {
		for _, l := range rows {
			if l.try == nil {
				continue
			}
			t.Run(title+"/"+l.what, func(t *testing.T) {
				most := int(source.value(t, l.number))
				inside, outside := most, most+1
				switch {
				case strings.HasPrefix(l.what, "the shortest"):
					outside = most - 1
				case strings.HasPrefix(l.what, "meta"):
					inside -= 16 // of the encoding
				}
				if err := l.try(t.Context(), c, inside); err != nil && l.refused(err) {
					t.Errorf("at the limit of %d: %v", most, err)
				}
				if err := l.try(t.Context(), c, outside); !l.refused(err) {
					t.Errorf("beyond the limit of %d: %v, want %s", most, err, l.beyond)
				}
			})
		}
	}
}

// sources are the constants of packages, by their paths from the root.
type sources map[string]*types.Scope

// value returns the value of a constant, named as in limit.number.
func (s sources) value(t *testing.T, number string) int64 {
	t.Helper()
	i := strings.LastIndex(number, ".")
	path, name := number[:i], number[i+1:]
	if s[path] == nil {
		s[path] = constantsOf(t, path)
	}
	c, ok := s[path].Lookup(name).(*types.Const)
	if !ok {
		t.Fatalf("%s is no constant", number)
	}
	n, ok := constant.Int64Val(constant.ToInt(c.Val()))
	if !ok {
		t.Fatalf("%s is %v", number, c.Val())
	}
	return n
}

func constantsOf(t *testing.T, path string) *types.Scope {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(path), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, file := range names {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f.Decls = slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
			g, ok := d.(*ast.GenDecl)
			return !ok || g.Tok != token.CONST && g.Tok != token.IMPORT
		})
		parsed = append(parsed, f)
	}
	// A constant made from another package's constants stays unknown: no row may name one.
	conf := types.Config{Error: func(error) {}, Importer: noImports{}}
	pkg, _ := conf.Check(path, files, parsed, nil)
	return pkg.Scope()
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("left out") }

// knownErrors returns the exported errors of the packages for users.
func knownErrors(t *testing.T) (known []string) {
	for _, pattern := range []string{"../cluster/*.go", "../locks/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				known = append(known, exportedErrors(t, name)...)
			}
		}
	}
	return known
}
