package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/transport"
)

func TestBadConfigIsRefusedByField(t *testing.T) {
	for _, tt := range []struct {
		field  string
		reason string
		change func(*Config)
	}{
		{"Config.Name", "exceed the limit of 64", func(c *Config) { c.Name = strings.Repeat("n", 65) }},
		{"Config.Name", "contains ' '", func(c *Config) { c.Name = "a b" }},
		{"Config.Name", "not valid UTF-8", func(c *Config) { c.Name = "\xff" }},
		{"Config.Cluster", "contains '/'", func(c *Config) { c.Cluster = "a/b" }},
		{"Config.Bind", "is not host:port", func(c *Config) { c.Bind = "127.0.0.1" }},
		{"Config.Bind", "no valid port", func(c *Config) { c.Bind = "127.0.0.1:70000" }},
		{"Config.Bind", "WARDMOTE_SECRET_FILE", func(c *Config) { c.Bind = "0.0.0.0:0" }},
		{"Config.Bind", "beyond loopback", func(c *Config) { c.Bind = ":0" }},
		{"Config.Bind", "beyond loopback", func(c *Config) { c.Advertise = "192.0.2.1:7000" }},
		{"Config.Advertise", "is not host:port", func(c *Config) { c.Advertise = "192.0.2.1" }},
		{"Config.Advertise", "not an IP address", func(c *Config) { c.Advertise = "host.example:7000" }},
		{"Config.Advertise", "not an IP address", func(c *Config) { c.Advertise = "0.0.0.0:7000" }},
		{"Config.Advertise", "has no port", func(c *Config) { c.Bind, c.Advertise = "127.0.0.1:7000", "127.0.0.1:0" }},
		{"Config.Join", "is not host:port", func(c *Config) { c.Join = []string{"n1"} }},
		{"Config.Join", "needs a host and a port", func(c *Config) { c.Join = []string{":7000"} }},
		{"Config.Join", "stand in its records", func(c *Config) { c.Join = []string{"_wardmote._tcp.example:7000"} }},
		{"Config.Join", "could never be in a cluster", func(c *Config) { c.InitialSize = 0 }},
		{"Config.Founders", "together with InitialSize", func(c *Config) { c.Founders = []string{"a"} }},
		{"Config.Founders", "named twice", func(c *Config) { c.InitialSize, c.Founders = 0, []string{"a", "b", "a"} }},
		{"Config.Founders", "contains ' '", func(c *Config) { c.InitialSize, c.Founders = 0, []string{"a b"} }},
		{"Config.Founders", "65 names exceed the limit of 64", func(c *Config) { c.InitialSize, c.Founders = 0, make([]string, 65) }},
		{"Config.InitialSize", "not in 0 to 64", func(c *Config) { c.InitialSize = -1 }},
		{"Config.InitialSize", "not in 0 to 64", func(c *Config) { c.InitialSize = 65 }},
		{"Config.Voting.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voting.Voters = 2 }},
		{"Config.Voting.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voting.Voters = 4 }},
		{"Config.Voting.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voting.Voters = -1 }},
		{"Config.Voting.Sync", "SyncBoot without a Dir", func(c *Config) { c.Voting.Sync = SyncBoot }},
		{"Config.Voting.Sync", "2 is not SyncAlways or SyncBoot", func(c *Config) { c.Dir, c.Voting.Sync = "/x", 2 }},
		{"Config.Voting.Sync", "this system has none", func(c *Config) {
			c.Dir, c.Voting.Sync, c.hostBoot = "/x", SyncBoot, func() string { return "" }
		}},
		{"Config.Voting.Log", "LogBolt without a Dir", func(c *Config) { c.Voting.Log = LogBolt }},
		{"Config.Voting.Log", "2 is not LogSegments or LogBolt", func(c *Config) { c.Dir, c.Voting.Log = "/x", 2 }},
		{"Config.TTL", "below the least, 300ms", func(c *Config) { c.TTL = 299 * time.Millisecond }},
		{"Config.TTL", "below the least, 300ms", func(c *Config) { c.TTL = -time.Second }},
		{"Config.TTL", "above the most, 24h0m0s", func(c *Config) { c.TTL = 25 * time.Hour }},
		{"Config.TTL", "whole number of milliseconds", func(c *Config) { c.TTL = time.Second + 1 }},
		{"Config.Security.Secrets", "9 secrets exceed the limit of 8", func(c *Config) { c.Security.Secrets = make([][]byte, 9) }},
		{"Config.Security.Secrets", "exceed the limit of 1024", func(c *Config) { c.Security.Secrets = [][]byte{make([]byte, 1025)} }},
		{"Config.Security.Secrets", "2 different bytes are below the least, 8", func(c *Config) { c.Security.Secrets = [][]byte{[]byte(strings.Repeat("ab", 32))} }},
		{"Config.Security.Secrets", "secrets 0 and 2 are the same", func(c *Config) {
			c.Security.Secrets = [][]byte{NewSecret(), NewSecret()}
			c.Security.Secrets = append(c.Security.Secrets, c.Security.Secrets[0])
		}},
		{"Config.Security.Insecure", "given together with Secrets", func(c *Config) { c.Security = Security{Insecure: true, Secrets: [][]byte{NewSecret()}} }},
		{"Config.Security.Identity", "given without TLS", func(c *Config) {
			c.Security.Identity = func(*x509.Certificate) (string, Role, error) { return "", RoleVoter, nil }
		}},
		{"Config.Security.TLS", "no certificate", func(c *Config) { c.Security.TLS = &tls.Config{RootCAs: x509.NewCertPool()} }},
		{"Config.Security.TLS", "RootCAs is nil", func(c *Config) { c.Security.TLS = &tls.Config{Certificates: make([]tls.Certificate, 1)} }},
		{"Config.Security.TLS", "verifies nobody", func(c *Config) {
			c.Security.TLS = &tls.Config{Certificates: make([]tls.Certificate, 1), InsecureSkipVerify: true}
		}},
		{"Config.Security.Secrets", "below the least, 32", func(c *Config) { c.Security.Secrets = [][]byte{[]byte("short")} }},
	} {
		cfg := Config{InitialSize: 1}
		tt.change(&cfg)
		n, err := Start(context.Background(), cfg)
		if err == nil {
			n.Stop()
		}
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != tt.field || !strings.Contains(bad.Reason, tt.reason) {
			t.Errorf("%s %s: got %v", tt.field, tt.reason, err)
		}
	}
}

func TestTheConfigIsNotPrintedWithItsSecret(t *testing.T) {
	cfg := Config{Security: Security{Secrets: [][]byte{[]byte("correct horse battery staple, said twice")}}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, cfg); strings.Contains(s, "horse") || strings.Contains(s, fmt.Sprint(cfg.Security.Secrets[0])[1:10]) {
			t.Errorf("%s prints the secret: %s", format, s)
		}
	}
}

func TestPlainTextStaysOnLoopback(t *testing.T) {
	if _, err := (Config{InitialSize: 1, Bind: "0.0.0.0:7000", Network: transport.TCP(), Advertise: "10.1.1.1:7000"}).withDefaults(); err == nil {
		t.Error("Network: TCP() sends plain text to other hosts")
	}
	if _, err := (Config{InitialSize: 1, Bind: "0.0.0.0:7000", Advertise: "127.0.0.1:7000"}).withDefaults(); err == nil {
		t.Error("with Advertise on loopback, Bind accepts plain text on all interfaces")
	}
	for _, cfg := range []Config{
		{Bind: "0.0.0.0:7000", Advertise: "10.1.1.1:7000", Security: Security{Insecure: true}},
		{Bind: "0.0.0.0:7000", Advertise: "10.1.1.1:7000", Security: Security{Secrets: [][]byte{NewSecret()}}},
		{Bind: "localhost:0", Advertise: "[::1]:7000"},
	} {
		cfg.InitialSize = 1
		if _, err := cfg.withDefaults(); err != nil {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}

func TestStartCopiesTheConfig(t *testing.T) {
	cfg := Config{Join: []string{"127.0.0.1:1"}, Founders: []string{"b", "a"}, Security: Security{Secrets: [][]byte{[]byte("correct horse battery staple, said twice")}}}
	checked, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	checked.Join[0], checked.Founders[0], checked.Security.Secrets[0][0] = "x", "x", 'x'
	if cfg.Join[0] != "127.0.0.1:1" || cfg.Founders[0] != "b" || cfg.Founders[1] != "a" || cfg.Security.Secrets[0][0] != 'c' {
		t.Errorf("the caller's Config has changed: %v %s", cfg, cfg.Security.Secrets)
	}
}

func TestTheTextOfAConfigHasTheVoting(t *testing.T) {
	text := Config{Voting: Voting{Voters: 5, Thin: true, Zone: "a"}}.String()
	if !strings.Contains(text, `Voters: 5, Thin: true, Zone: "a", `) || strings.Contains(text, "_") {
		t.Error(text)
	}
}
