package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/port"
)

// output collects everything that a node says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// add adds values as programs print them.
func (o *output) add(values ...any) {
	for _, v := range values {
		fmt.Fprintf(o, "%v\n%+v\n%#v\n%s\n%q\n", v, v, v, v, v)
		if b, err := json.Marshal(v); err == nil {
			o.Write(append(b, '\n'))
		} else {
			fmt.Fprintln(o, err)
		}
	}
}

// logger writes everything, Debug too, in both of slog's forms.
func (o *output) logger() *slog.Logger {
	all := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
	return slog.New(slog.NewMultiHandler(slog.NewTextHandler(o, all), slog.NewJSONHandler(o, all)))
}

// traces returns the forms in which the text has a part of the secret: 8 of its
// bytes, as they are or as a program prints bytes.
func traces(text, secret []byte) (forms []string) {
	found := func(form, part string) {
		if !slices.Contains(forms, form) && bytes.Contains(text, []byte(part)) {
			forms = append(forms, form)
		}
	}
	const n = 8
	lower := bytes.ToLower(text)
	for i := 0; i+n <= len(secret); i++ {
		part := secret[i : i+n]
		found("raw", string(part))
		if !slices.Contains(forms, "hex") && bytes.Contains(lower, []byte(hex.EncodeToString(part))) {
			forms = append(forms, "hex")
		}
		decimal := strings.Trim(fmt.Sprint(part), "[]")
		found("decimal", decimal)
		found("JSON", strings.ReplaceAll(decimal, " ", ","))
		found("Go", strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte"), "{}"))
		found("quoted", strings.Trim(fmt.Sprintf("%q", part), `"`))
		// Wherever the secret stands in an encoding, one of three in a row begins at
		// a multiple of three bytes; 9 bytes are 12 letters.
		if i+9 <= len(secret) {
			found("base64", base64.StdEncoding.EncodeToString(secret[i:i+9]))
			found("base64", base64.URLEncoding.EncodeToString(secret[i:i+9]))
		}
	}
	return forms
}

func TestTracesAreFound(t *testing.T) {
	secret := NewSecret()
	for form, text := range map[string]string{
		"raw": string(secret), "hex": fmt.Sprintf("%X", secret), "decimal": fmt.Sprint([][]byte{secret}),
		"Go": fmt.Sprintf("%#v", secret), "quoted": fmt.Sprintf("%q", secret),
		"base64": base64.RawURLEncoding.EncodeToString(append([]byte("x"), secret...)),
	} {
		if got := traces([]byte("before "+text+" after"), secret); !slices.Contains(got, form) {
			t.Errorf("%s: found %q", form, got)
		}
	}
	if got := traces([]byte(strings.Repeat("nothing here ", 99)), secret); len(got) > 0 {
		t.Errorf("found %q in nothing", got)
	}
}

// keys returns a secret and everything that is derived from it and must stay
// secret, by name.
func keys(secret []byte, cluster string) map[string][]byte {
	derive := func(info string) []byte {
		key, err := hkdf.Key(sha256.New, secret, nil, info, 32)
		if err != nil {
			panic(err)
		}
		return key
	}
	ca := derive("wardmote/2 ca " + cluster)
	return map[string][]byte{
		"the secret":           secret,
		"the key of gossip":    derive("wardmote/2 gossip " + cluster),
		"the seed of the CA":   ca,
		"the key of the CA":    ed25519.NewKeyFromSeed(ca),
		"the key of gossip, 1": derive("gossip/1" + cluster),
	}
}

// A cluster with secrets lives, is attacked and misused, and ends. Nothing that it
// says on the way, and no file in its Dirs, has a part of a secret or of a key.
func TestNoSecretInAnyOutputOrFile(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	secret, former, strange := NewSecret(), NewSecret(), NewSecret()
	var out output
	inBubble(t, func(b *bubble) {
		secured := func(secrets ...[]byte) func(*Config) {
			return func(c *Config) {
				c.Security.Secrets, c.Logger = secrets, out.logger()
				c.Events = func(_ context.Context, e Event) { out.add(e) }
			}
		}
		members := []func(*Config){secured(secret, former), inDir(dir)}
		nodes := b.form(members...)
		for _, n := range nodes {
			out.add(n, n.cfg, &n.cfg, n.cfg.Security, n.Health(b.within(time.Minute)), n.Addr())
		}
		out.logger().Info("as a program may", "config", nodes[0].cfg, "security", nodes[0].cfg.Security, "node", nodes[0])
		b.hold(nodes[0], 1, "k")

		// A process with another secret, which never gets in.
		other := b.start("n4", thin, ttl(10*time.Second), secured(strange))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		out.add(other.Ready(ctx), other.Health(ctx))
		cancel()
		// A stranger's bytes.
		p := b.stranger(nodes[0])
		for _, n := range nodes {
			c, err := p.Dial(b.within(5*time.Second), n.Addr(), port.KindGossip, port.Peer{})
			if err == nil {
				c.Write(bytes.Repeat([]byte("garbage "), 1000))
				c.Close()
			}
			out.add(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		// Configurations that are refused.
		for _, wrong := range []func(*Config){
			func(c *Config) { c.Security.Secrets[0] = c.Security.Secrets[0][:31] },
			func(c *Config) { c.Security.Insecure = true },
			func(c *Config) { c.Security.Secrets = append(c.Security.Secrets, make([]byte, 5000)) },
			func(c *Config) {}, // Dir in use
		} {
			cfg := b.config("n1")
			for _, change := range members {
				change(&cfg)
			}
			cfg.Security.Secrets = [][]byte{bytes.Clone(secret), former}
			wrong(&cfg)
			n, err := Start(context.Background(), cfg)
			if err == nil {
				err = n.Stop()
			}
			out.add(err, cfg)
		}
		b.crash("n2")
		time.Sleep(3 * time.Second)
		b.join("n2", members...)
		for name, n := range b.nodes {
			out.add(n.Stop(), n.Stop(), n.Ready(b.within(time.Second)), n.Health(b.within(time.Second)), n)
			delete(b.nodes, name)
		}
	})
	out.mu.Lock()
	defer out.mu.Unlock()
	if said := out.text.String(); !strings.Contains(said, "level=DEBUG") || !strings.Contains(said, "in use by another process") || len(said) < 10_000 {
		t.Fatalf("the members said %d bytes, too little to show anything", len(said))
	}
	all := make(map[string][]byte)
	for i, s := range [][]byte{secret, former, strange} {
		for name, key := range keys(s, "test") {
			all[fmt.Sprintf("%s of secret %d", name, i)] = key
		}
	}
	for name, key := range all {
		if forms := traces(out.text.Bytes(), key); len(forms) > 0 {
			t.Errorf("the output has %s, as %q", name, forms)
		}
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		for name, key := range all {
			if forms := traces(text, key); len(forms) > 0 {
				t.Errorf("%s has %s, as %q", path, name, forms)
			}
		}
		return err
	})
	if err != nil || files < 6 {
		t.Errorf("%d files: %v", files, err)
	}
}
