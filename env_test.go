package wardmote

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

const secret1, secret2 = "dGhlIGZpcnN0IHNlY3JldCBvZiBhbGwgdGhlc2UgdGVzdHM", "YW5vdGhlciBzZWNyZXQsIHdoaWNoIGlzIHRoZSBvbGRlciBvbmU"

// secretFile writes a file of secrets.
func secretFile(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheEnvironmentFillsEveryField(t *testing.T) {
	file := secretFile(t, secret1+"\n\n  "+secret2+"\r\n")
	got, err := fill(cluster.Config{}, []string{
		"PATH=/bin", "WARDMOTE_NAME=ann", "WARDMOTE_CLUSTER=billing", "WARDMOTE_BIND=:7946", "WARDMOTE_ADVERTISE=192.0.2.7",
		"WARDMOTE_JOIN= a.example:7946, 192.0.2.8:7946,_w._tcp.example.com,", "WARDMOTE_INITIAL_SIZE=3", "WARDMOTE_TTL=1m30s",
		"WARDMOTE_DIR=/var/lib/w", "WARDMOTE_VOTERS=5", "WARDMOTE_THIN=true", "WARDMOTE_ZONE=b", "WARDMOTE_SYNC=boot", "WARDMOTE_JOIN_IS_COMPLETE=1",
		"WARDMOTE_SECRET_FILE=" + file,
	})
	want := cluster.Config{
		Name: "ann", Cluster: "billing", Bind: ":7946", Advertise: "192.0.2.7:7946",
		Join: []string{"a.example:7946", "192.0.2.8:7946", "_w._tcp.example.com"}, InitialSize: 3, TTL: 90 * time.Second,
		Dir: "/var/lib/w", Voting: cluster.Voting{Voters: 5, Thin: true, Zone: "b", Sync: cluster.SyncBoot},
		Recovery: cluster.Recovery{JoinIsComplete: true}, Security: cluster.Security{Secrets: make([][]byte, 2)},
	}
	if err != nil || got.String() != want.String() {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
	if s := got.Security.Secrets; len(s) != 2 || string(s[0]) != secret1 || string(s[1]) != secret2 {
		t.Errorf("%d secrets, or not the newest first", len(s))
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	if got, err := fill(cluster.Config{}, []string{"WARDMOTE_FOUNDERS=a,b,c"}); err != nil || len(got.Founders) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
}

// What the program has set stays, and is not even read. Founders and InitialSize are
// one choice.
func TestTheProgramWins(t *testing.T) {
	set := cluster.Config{
		Name: "x", Cluster: "x", Bind: "127.0.0.1:1", Advertise: "127.0.0.1:1", Join: []string{"127.0.0.1:2"}, InitialSize: 1, TTL: time.Second,
		Dir: "x", Voting: cluster.Voting{Voters: 1, Thin: true, Zone: "x", Sync: cluster.SyncBoot}, Recovery: cluster.Recovery{JoinIsComplete: true},
		Security: cluster.Security{Secrets: [][]byte{[]byte(secret1)}},
	}
	var log bytes.Buffer
	set.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var environ []string
	for _, v := range variables {
		environ = append(environ, prefix+v.name+"=???")
	}
	got, err := fill(set, append(environ, "POD_IP=???"))
	if err != nil || got.String() != set.String() || string(got.Security.Secrets[0]) != secret1 {
		t.Errorf("got %v, %v", got, err)
	}
	if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), "variables without effect") || !strings.Contains(log.String(), "WARDMOTE_TTL") {
		t.Errorf("logged %s", &log)
	}
}

func TestEmptyVariablesAreUnset(t *testing.T) {
	var environ []string
	for _, v := range variables {
		environ = append(environ, prefix+v.name+"= ")
	}
	if got, err := fill(cluster.Config{}, environ); err != nil || got.String() != (cluster.Config{}).String() {
		t.Errorf("got %v, %v", got, err)
	}
}

// The error has the variable, the value and the allowed values. Nothing is changed.
func TestBadValuesAreNamed(t *testing.T) {
	for entry, want := range map[string]string{
		"NAME=a b":                         "",
		"CLUSTER=ä":                        "",
		"BIND=7946":                        "not host:port",
		"BIND=:79460":                      "no valid port",
		"ADVERTISE=nonsense":               "",
		"ADVERTISE=0.0.0.0":                "",
		"ADVERTISE=224.0.0.1":              "",
		"ADVERTISE=fe80::1%eth0":           "",
		"ADVERTISE=host.example:7000":      "",
		"JOIN=,":                           "names nothing",
		"JOIN=a.example":                   "not host:port",
		"JOIN=a.example:7000 b.example:70": "not host:port",
		"FOUNDERS=a,a":                     "named twice",
		"INITIAL_SIZE=three":               "not a number above zero",
		"INITIAL_SIZE=0":                   "not a number above zero",
		"INITIAL_SIZE=65":                  "65 is not in 0 to 64",
		"INITIAL_SIZE=-1":                  "",
		"TTL=10":                           "not a duration above zero",
		"TTL=0s":                           "not a duration above zero",
		"TTL=1ms":                          "below the least",
		"TTL=48h":                          "above the most",
		"VOTERS=4":                         "4 is not 1, 3, 5 or 7",
		"THIN=maybe":                       "neither true nor false",
		"ZONE=a/b":                         "",
		"SYNC=never":                       "neither always nor boot",
		"JOIN_IS_COMPLETE=2":               "neither true nor false",
	} {
		name, value, _ := strings.Cut(entry, "=")
		cfg := cluster.Config{Logger: slog.New(slog.DiscardHandler)}
		got, err := fill(cfg, []string{"WARDMOTE_DIR=/good", prefix + entry})
		bad, ok := errors.AsType[*cluster.ConfigError](err)
		if !ok || bad.Field != prefix+name || !strings.Contains(bad.Reason, fmt.Sprintf("%q", value)) ||
			!strings.Contains(bad.Reason, "; allowed: ") || !strings.Contains(bad.Reason, want) {
			t.Errorf("%s: %v", entry, err)
		}
		if got.String() != cfg.String() {
			t.Errorf("%s: changed to %v", entry, got)
		}
	}
	both := []string{"WARDMOTE_FOUNDERS=a", "WARDMOTE_INITIAL_SIZE=3"}
	if _, err := fill(cluster.Config{}, both); err == nil || !strings.Contains(err.Error(), "given together with WARDMOTE_INITIAL_SIZE") {
		t.Errorf("both choices of founders: %v", err)
	}
}

// No error and no line of the log has a secret, even if the secret was put in the
// place of the path or under the wrong name.
func TestSecretsAreNotTold(t *testing.T) {
	for about, entries := range map[string][]string{
		"not there":      {"SECRET_FILE=" + filepath.Join(t.TempDir(), secret1)},
		"no path":        {"SECRET_FILE=" + secret1},
		"too short":      {"SECRET_FILE=" + secretFile(t, secret1[:20])},
		"second short":   {"SECRET_FILE=" + secretFile(t, secret1+"\n"+secret2[:20])},
		"twice the same": {"SECRET_FILE=" + secretFile(t, secret1+"\n"+secret1)},
		"binary":         {"SECRET_FILE=" + secretFile(t, secret1+"\x00"+secret2)},
		"two words":      {"SECRET_FILE=" + secretFile(t, secret1+" "+secret2)},
		"empty":          {"SECRET_FILE=" + secretFile(t, " \n")},
		"wrong name":     {"SECRET=" + secret1, "THIN=maybe"},
	} {
		var log bytes.Buffer
		for i := range entries {
			entries[i] = prefix + entries[i]
		}
		_, err := fill(cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, entries)
		if bad, ok := errors.AsType[*cluster.ConfigError](err); !ok || !strings.Contains(bad.Reason, "; allowed: ") {
			t.Errorf("%s: %v", about, err)
		}
		for _, text := range []string{fmt.Sprint(err), log.String()} {
			if strings.Contains(text, secret1[:12]) || strings.Contains(text, secret2[:12]) || strings.Contains(text, os.TempDir()) {
				t.Errorf("%s: told in %q", about, text)
			}
		}
	}
}

// A Service named wardmote brings variables, and none of them is read.
func TestOtherVariablesAreToldAndNotRead(t *testing.T) {
	var log bytes.Buffer
	got, err := fill(cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, []string{
		"WARDMOTE_SERVICE_HOST=10.0.0.1", "WARDMOTE_SERVICE_PORT=7946", "WARDMOTE_SERVICE_PORT_GOSSIP=7946", "WARDMOTE_PORT=tcp://10.0.0.1:7946",
		"WARDMOTE_PORT_7946_TCP=tcp://10.0.0.1:7946", "WARDMOTE_PORT_7946_UDP_PROTO=udp", "WARDMOTE_BIND_SERVICE_HOST=10.0.0.2",
		"WARDMOTE_JION=value-1", "WARDMOTE_SECRET=value-2", "wardmote_name=x", "WARDMOTEX=y",
	})
	if got.Logger = nil; err != nil || got.String() != (cluster.Config{}).String() {
		t.Errorf("got %v, %v", got, err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `level=WARN msg="unknown variables in the environment" variables="WARDMOTE_JION WARDMOTE_SECRET"`) ||
		!strings.Contains(lines[1], `level=INFO msg="variables of a Kubernetes service in the environment" variables="WARDMOTE_BIND_SERVICE_HOST WARDMOTE_PORT WARDMOTE_PORT_7946_TCP `) {
		t.Errorf("logged %s", &log)
	}
	if strings.Contains(log.String(), "value-") || strings.Contains(log.String(), "10.0.0.1") {
		t.Errorf("values are told: %s", &log)
	}
	for _, v := range variables {
		if ofService.MatchString(prefix + v.name) {
			t.Errorf("a Service could bring %s", v.name)
		}
	}
}

func TestTheAddressOfAPod(t *testing.T) {
	for _, tt := range []struct {
		env   string // pairs, with a space between
		bind  string
		want  string
		fails string // the ConfigError's field
	}{
		{"POD_IP=192.0.2.8", ":7000", "192.0.2.8:7000", ""},
		{"POD_IP=192.0.2.8 WARDMOTE_BIND=0.0.0.0:7000", "", "192.0.2.8:7000", ""},
		{"POD_IP=fd00::8", "[::]:7000", "[fd00::8]:7000", ""},
		{"POD_IP=192.0.2.8 WARDMOTE_ADVERTISE=192.0.2.7", ":7000", "192.0.2.7:7000", ""},
		{"WARDMOTE_ADVERTISE=192.0.2.7:7999", ":7000", "192.0.2.7:7999", ""},
		{"WARDMOTE_ADVERTISE=[2a00::7]:7999", ":7000", "[2a00::7]:7999", ""},
		{"WARDMOTE_ADVERTISE=2a00::7", ":7000", "[2a00::7]:7000", ""},
		{"WARDMOTE_ADVERTISE=192.0.2.7", "", "192.0.2.7:0", ""},
		{"POD_IP=192.0.2.8", "127.0.0.1:7000", "", ""},
		{"POD_IP=nonsense", "10.0.0.1:7000", "", ""},
		{"POD_IP=192.0.2.8", "", "", ""},
		{"POD_IP=nonsense", ":7000", "", "POD_IP"},
		{"POD_IP=127.0.0.1", ":7000", "", "POD_IP"},
		{"POD_IP=::", ":7000", "", "POD_IP"},
		{"POD_IP=192.0.2.8:7000", ":7000", "", "POD_IP"},
	} {
		got, err := fill(cluster.Config{Bind: tt.bind}, strings.Fields(tt.env))
		bad, failed := errors.AsType[*cluster.ConfigError](err)
		if got.Advertise != tt.want || failed != (tt.fails != "") || failed && bad.Field != tt.fails {
			t.Errorf("%s with bind %q: %q, %v; want %q, %q", tt.env, tt.bind, got.Advertise, err, tt.want, tt.fails)
		}
	}
}
