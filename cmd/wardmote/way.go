package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// wayFlags says which ways to the cluster a command has.
type wayFlags uint8

const (
	byJoin wayFlags = 1 << iota
	byURL
	withJSON
)

// way is the way to the cluster that the flags and the environment have chosen.
type way struct {
	url, join              string
	name, cluster, bind    string
	secretFile             string
	certFile, keyFile      string
	caFile                 string
	insecure, json, debugs bool
	timeout                time.Duration

	set map[string]bool // the flags of the command line
}

func (w *way) define(fs *flag.FlagSet, f wayFlags) {
	if f&byURL != 0 {
		fs.StringVar(&w.url, "url", "", "the `address` of a member's page, such as http://127.0.0.1:8080/wardmote/, or several with commas between (WARDMOTE_URL)")
	}
	if f&byJoin != 0 {
		fs.StringVar(&w.join, "join", "", "`addresses` of members, with commas between (WARDMOTE_JOIN)")
		fs.StringVar(&w.name, "name", "", "the `name` of this member; needed only where certificates bind names; default: cli-, the host's name and a random suffix")
		fs.StringVar(&w.cluster, "cluster", "", "the cluster's `name` (WARDMOTE_CLUSTER; default wardmote)")
		fs.StringVar(&w.bind, "bind", "", "the `host:port` to listen on; default: any free port, of loopback if all addresses of -join are loopback's")
		fs.StringVar(&w.secretFile, "secret-file", "", "a `file` with the cluster's secrets (WARDMOTE_SECRET_FILE)")
		fs.StringVar(&w.certFile, "cert", "", "a `file` with this member's certificate, where the cluster uses certificates; with -key and -ca")
		fs.StringVar(&w.keyFile, "key", "", "the `file` with the certificate's key")
		fs.BoolVar(&w.insecure, "insecure", false, "plain text beyond loopback, if the cluster does so")
		fs.BoolVar(&w.debugs, "debug", false, "write the log of this member to stderr")
	}
	fs.StringVar(&w.caFile, "ca", "", "a `file` with the certificates that verify the other side")
	fs.DurationVar(&w.timeout, "timeout", 10*time.Second, "the `time` in which the cluster or the page must answer")
	if f&withJSON != 0 {
		fs.BoolVar(&w.json, "json", false, "print JSON in place of tables")
	}
}

// check completes the way from the environment and refuses contradictions.
func (w *way) check(c *command) error {
	if c.ways == 0 {
		return nil
	}
	if w.timeout <= 0 {
		return usageError(c.name, "-timeout %v is not above zero", w.timeout)
	}
	if w.url != "" && w.join != "" {
		return usageError(c.name, "-url and -join are two ways to a cluster: give one of them")
	}
	if w.url == "" && w.join == "" && c.ways&byURL != 0 {
		w.url = os.Getenv("WARDMOTE_URL")
	}
	if w.url == "" && w.join == "" && (c.ways&byJoin == 0 || os.Getenv("WARDMOTE_JOIN") == "") {
		if c.ways&byURL == 0 {
			return usageError(c.name, "no way to a cluster: give -join HOST:PORT")
		}
		if c.ways&byJoin == 0 {
			return usageError(c.name, "no way to a cluster: give -url, the page of the member that is to do it")
		}
		return usageError(c.name, "no way to a cluster: give -url or -join")
	}
	if (w.certFile == "") != (w.keyFile == "") || w.certFile != "" && w.caFile == "" {
		return usageError(c.name, "-cert, -key and -ca go together")
	}
	return nil
}

// config returns the configuration of a member without a vote. Of the environment it
// takes the way in and the secrets, and nothing that belongs to the application beside
// which the command may run: neither name and port, nor its directory, nor its part in
// the founding.
func (w *way) config() (cluster.Config, error) {
	none := cluster.Config{}
	cfg := cluster.Config{
		Name: cmp.Or(w.name, ownName()),
		// The cluster keeps its own bound: the largest TTL of any member counts.
		TTL:      300 * time.Millisecond,
		Cluster:  w.cluster,
		Voting:   cluster.Voting{Thin: true},
		Security: cluster.Security{Insecure: w.insecure},
	}
	for entry := range strings.SplitSeq(w.join, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			cfg.Join = append(cfg.Join, entry)
		}
	}
	restore, err := withSecretFile(w.secretFile)
	if err != nil {
		return none, err
	}
	defer restore()
	asked := cfg
	asked.Bind = cmp.Or(w.bind, "127.0.0.1:0") // the application's port is taken
	asked.Advertise, asked.Dir, asked.InitialSize, asked.Voting.Voters, asked.Voting.Zone = "-", "-", 64, 1, "-"
	asked.Recovery.JoinIsComplete = true
	if w.certFile != "" {
		asked.Security.Secrets = [][]byte{cluster.NewSecret()} // none from the environment
	}
	told, err := wardmote.Env(asked)
	if err != nil {
		return none, err
	}
	cfg.Join, cfg.Cluster = told.Join, told.Cluster
	if w.certFile == "" {
		cfg.Security.Secrets = told.Security.Secrets
	} else if cfg.Security.TLS, err = w.tlsConfig(); err != nil {
		return none, err
	}
	cfg.Bind = w.bind
	if cfg.Bind == "" && !loopback(cfg.Join) {
		cfg.Bind = ":0"
	}
	if ip := os.Getenv("POD_IP"); ip != "" && strings.HasPrefix(cfg.Bind, ":") {
		cfg.Advertise = net.JoinHostPort(ip, strings.TrimPrefix(cfg.Bind, ":"))
	}
	if w.debugs {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg, cfg.Check()
}

// withSecretFile has Env read the file of a flag in place of the variable's.
func withSecretFile(path string) (restore func(), err error) {
	const variable = "WARDMOTE_SECRET_FILE"
	if path == "" {
		return func() {}, nil
	}
	old, had := os.LookupEnv(variable)
	if err := os.Setenv(variable, path); err != nil {
		return nil, err
	}
	return func() {
		if had {
			os.Setenv(variable, old)
		} else {
			os.Unsetenv(variable)
		}
	}, nil
}

// tlsConfig reads the files of certificates.
func (w *way) tlsConfig() (*tls.Config, error) {
	next := "give files that this user can read, in PEM"
	pair, err := tls.LoadX509KeyPair(w.certFile, w.keyFile)
	if err != nil {
		return nil, fail(exitConfig, next, "-cert, -key: %v", err)
	}
	roots, err := w.roots()
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots}, nil
}

// roots returns the certificates of -ca, or nil for the certificates of the host.
func (w *way) roots() (*x509.CertPool, error) {
	if w.caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(w.caFile)
	if err != nil {
		return nil, fail(exitConfig, "give a file that this user can read", "-ca: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fail(exitConfig, "give certificates in PEM", "-ca: %s has no certificate", w.caFile)
	}
	return roots, nil
}

// loopback reports whether all addresses are of this host's loopback.
func loopback(addrs []string) bool {
	for _, a := range addrs {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			return false
		}
		ip, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// ownName is a name that no other process has: the command may run beside a member of
// the application, and as often as somebody likes.
func ownName() string {
	host, _ := os.Hostname()
	host = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' {
			return c
		}
		return '-'
	}, cmp.Or(host, "host"))
	var suffix [4]byte
	rand.Read(suffix[:])
	return "cli-" + host[:min(len(host), 40)] + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(suffix[:]))
}

// A joined is this program as a member of the cluster.
type joined struct {
	node   *cluster.Node
	client *locks.Client
}

// start starts a member and a client.
func (w *way) start(ctx context.Context, o locks.Options) (*joined, error) {
	cfg, err := w.config()
	if err != nil {
		return nil, err
	}
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		if asFailure(err).code == exitConfig {
			return nil, err
		}
		return nil, fail(exitConfig, "give another -bind", "%v", err)
	}
	return &joined{node: node, client: locks.New(node, o)}, nil
}

// closeLimit bounds the farewell. Keys that the farewell could not free are free after the
// TTL.
const closeLimit = 3 * time.Second

// close ends the client and the member. The result is the error of the client: keys may
// stay taken for a TTL.
func (j *joined) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := j.client.Close(ctx)
	_ = j.node.Stop() // in memory: nothing is left behind that could fail
	return err
}

// asFailure returns err with an exit code and an action.
func asFailure(err error) *failure {
	var f *failure
	var config *cluster.ConfigError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &config):
		code, next := exitConfig, "correct it, see wardmote help"
		if !strings.HasPrefix(config.Field, "Config.") && !strings.HasPrefix(config.Field, "WARDMOTE_") && config.Field != "POD_IP" {
			code = exitUsage
		}
		return &failure{code, trim(err), next}
	case errors.Is(err, cluster.ErrDenied):
		return &failure{exitDenied, trim(err), "ask the cluster's operators: Security.Authorize decides"}
	case errors.Is(err, cluster.ErrNoQuorum):
		return &failure{exitUnavailable, trim(err), "see wardmote status"}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{exitUnavailable, trim(err), "see wardmote status, or give a longer -timeout"}
	}
	return &failure{exitFailed, trim(err), ""}
}

// trim removes the prefixes of the packages: the reader sees a command.
func trim(err error) string {
	text := err.Error()
	for _, prefix := range []string{"wardmote: ", "locks: ", "cluster: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
