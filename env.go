package wardmote

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/files"
)

// prefix of all variables. Every other variable of that prefix is told in the log.
const prefix = "WARDMOTE_"

// Env returns cfg completed from the environment of the process. A variable fills a
// field that is zero; a field that the program has set stays, and so does cfg itself.
//
//	WARDMOTE_NAME              Name
//	WARDMOTE_CLUSTER           Cluster
//	WARDMOTE_BIND              Bind: host:port, or :port
//	WARDMOTE_ADVERTISE         Advertise: an IP address, or with a port
//	WARDMOTE_JOIN              Join: addresses, with commas between
//	WARDMOTE_FOUNDERS          Founders: names, with commas between
//	WARDMOTE_INITIAL_SIZE      InitialSize: a number
//	WARDMOTE_TTL               TTL: 10s, 1m30s
//	WARDMOTE_DIR               Dir
//	WARDMOTE_VOTERS            Voting.Voters: 1, 3, 5 or 7
//	WARDMOTE_THIN              Voting.Thin: true or false
//	WARDMOTE_ZONE              Voting.Zone
//	WARDMOTE_SYNC              Voting.Sync: always or boot
//	WARDMOTE_JOIN_IS_COMPLETE  Recovery.JoinIsComplete: true or false
//	WARDMOTE_SECRET_FILE       Security.Secrets: the path of a file
//	POD_IP                     Advertise, for a wildcard Bind and without WARDMOTE_ADVERTISE
//
// Founders and InitialSize are one choice: a program that sets one of them has chosen.
// Plain text beyond loopback, certificates and AssumeGone are decisions of the program,
// and have no variable.
//
// The file of secrets has one secret a line, the newest first, of printable ASCII:
// head -c 32 /dev/urandom | base64 makes one. A file that other users can write to is
// refused, and so is a file of this process's user that others can read. Files of root
// may be readable, as Kubernetes and Docker show secrets in a container.
//
// A value that cannot be used is a *cluster.ConfigError that names the variable, the
// value and the allowed values; never a secret, and not the path of its file. Env then
// returns cfg as it was. Empty variables count as unset. Other variables that begin
// with WARDMOTE_ are told in cfg.Logger, by name alone, and never read; a Kubernetes
// Service named wardmote brings several. WARDMOTE_KEY, WARDMOTE_TOKEN and WARDMOTE_URL
// belong to the command wardmote.
func Env(cfg cluster.Config) (cluster.Config, error) {
	return fill(cfg, os.Environ())
}

// variable is a field of the configuration that the environment may fill.
type variable struct {
	name   string // without the prefix
	allows string
	chosen func(*cluster.Config) bool                     // the program has set the field
	read   func(cfg *cluster.Config, value string) error  // an error without the value
	around func(trial *cluster.Config, of cluster.Config) // what a check of the value depends on; may be nil
	hidden bool                                           // the value is not told
}

const (
	aName   = "1 to 64 bytes of letters, digits, '-', '_' and '.'"
	aBool   = "true or false"
	aSecret = "a file with one secret a line, of 32 to 1,024 bytes of printable ASCII: head -c 32 /dev/urandom | base64"
)

// variables are filled in this order.
var variables = []variable{
	text("NAME", aName, func(c *cluster.Config) *string { return &c.Name }),
	text("CLUSTER", aName, func(c *cluster.Config) *string { return &c.Cluster }),
	text("BIND", "host:port or :port", func(c *cluster.Config) *string { return &c.Bind }),
	{
		name: "ADVERTISE", allows: "an IP address that others can reach, or IP address:port",
		chosen: func(c *cluster.Config) bool { return c.Advertise != "" },
		read:   readAdvertise,
		around: func(trial *cluster.Config, of cluster.Config) { trial.Bind = of.Bind },
	},
	{
		name: "JOIN", allows: "addresses host:port, or SRV names that begin with '_', with commas between",
		chosen: func(c *cluster.Config) bool { return len(c.Join) > 0 },
		read:   func(c *cluster.Config, v string) (err error) { c.Join, err = list(v); return err },
		around: func(trial *cluster.Config, of cluster.Config) { trial.Resolver = of.Resolver },
	},
	{
		name: "FOUNDERS", allows: "names, with commas between",
		chosen: foundersChosen,
		read:   func(c *cluster.Config, v string) (err error) { c.Founders, err = list(v); return err },
	},
	number("INITIAL_SIZE", "a number of members, such as 3", foundersChosen, func(c *cluster.Config) *int { return &c.InitialSize }),
	{
		name: "TTL", allows: "a duration with a unit, such as 10s, from 300ms to 24h",
		chosen: func(c *cluster.Config) bool { return c.TTL != 0 },
		read: func(c *cluster.Config, v string) (err error) {
			if c.TTL, err = time.ParseDuration(v); err != nil || c.TTL == 0 {
				return errors.New("not a duration above zero")
			}
			return nil
		},
	},
	text("DIR", "a directory", func(c *cluster.Config) *string { return &c.Dir }),
	number("VOTERS", "1, 3, 5 or 7", func(c *cluster.Config) bool { return c.Voting.Voters != 0 }, func(c *cluster.Config) *int { return &c.Voting.Voters }),
	truth("THIN", func(c *cluster.Config) *bool { return &c.Voting.Thin }),
	text("ZONE", aName, func(c *cluster.Config) *string { return &c.Voting.Zone }),
	{
		name: "SYNC", allows: "always or boot",
		chosen: func(c *cluster.Config) bool { return c.Voting.Sync != cluster.SyncAlways },
		read: func(c *cluster.Config, v string) error {
			switch v {
			case "always":
			case "boot":
				c.Voting.Sync = cluster.SyncBoot
			default:
				return errors.New("neither always nor boot")
			}
			return nil
		},
		around: func(trial *cluster.Config, of cluster.Config) { trial.Dir = of.Dir },
	},
	truth("JOIN_IS_COMPLETE", func(c *cluster.Config) *bool { return &c.Recovery.JoinIsComplete }),
	{
		name: "SECRET_FILE", allows: aSecret, hidden: true,
		chosen: func(c *cluster.Config) bool { return len(c.Security.Secrets) > 0 },
		read:   readSecrets,
		around: func(trial *cluster.Config, _ cluster.Config) { trial.Security.Insecure = false },
	},
}

func foundersChosen(c *cluster.Config) bool { return len(c.Founders) > 0 || c.InitialSize != 0 }

func text(name, allows string, field func(*cluster.Config) *string) variable {
	return variable{
		name: name, allows: allows,
		chosen: func(c *cluster.Config) bool { return *field(c) != "" },
		read:   func(c *cluster.Config, v string) error { *field(c) = v; return nil },
	}
}

func number(name, allows string, chosen func(*cluster.Config) bool, field func(*cluster.Config) *int) variable {
	return variable{name: name, allows: allows, chosen: chosen, read: func(c *cluster.Config, v string) (err error) {
		if *field(c), err = strconv.Atoi(v); err != nil || *field(c) == 0 {
			return errors.New("not a number above zero")
		}
		return nil
	}}
}

func truth(name string, field func(*cluster.Config) *bool) variable {
	return variable{
		name: name, allows: aBool,
		chosen: func(c *cluster.Config) bool { return *field(c) },
		read: func(c *cluster.Config, v string) (err error) {
			if *field(c), err = strconv.ParseBool(v); err != nil {
				return errors.New("neither true nor false")
			}
			return nil
		},
	}
}

// fill is Env for the given environment.
func fill(cfg cluster.Config, environ []string) (cluster.Config, error) {
	env := make(map[string]string)
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = strings.TrimSpace(value)
		}
	}
	out, idle := cfg, []string(nil)
	for _, v := range variables {
		name := prefix + v.name
		switch value := env[name]; {
		case value == "":
		case v.chosen(&cfg):
			idle = append(idle, name)
		default:
			if err := v.fill(&out, value); err != nil {
				tellOthers(cfg.Logger, env, nil)
				return cfg, err
			}
		}
	}
	tellOthers(cfg.Logger, env, idle)
	if len(out.Founders) > 0 && out.InitialSize != 0 && !foundersChosen(&cfg) {
		return cfg, &cluster.ConfigError{Field: prefix + "FOUNDERS", Reason: "given together with " + prefix + "INITIAL_SIZE; give only one of them"}
	}
	if err := podIP(&out, env["POD_IP"]); err != nil {
		return cfg, err
	}
	return out, nil
}

// fill sets the field to the value, or returns an error that names the variable.
func (v variable) fill(cfg *cluster.Config, value string) error {
	bad := func(why string) error {
		if !v.hidden {
			why = fmt.Sprintf("%q: %s", value, why)
		}
		return &cluster.ConfigError{Field: prefix + v.name, Reason: why + "; allowed: " + v.allows}
	}
	// Judged in a configuration in which nothing else can be wrong, so that the error
	// is about this value.
	trial := cluster.Config{Join: []string{"127.0.0.1:1"}, Security: cluster.Security{Insecure: true}}
	if v.around != nil {
		v.around(&trial, *cfg)
	}
	if err := v.read(&trial, value); err != nil {
		return bad(err.Error())
	}
	if err := trial.Check(); err != nil {
		if c, ok := errors.AsType[*cluster.ConfigError](err); ok {
			return bad(c.Reason)
		}
		return bad(err.Error())
	}
	return v.read(cfg, value)
}

// list splits at commas.
func list(value string) (out []string, err error) {
	for entry := range strings.SplitSeq(value, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	if len(out) == 0 {
		err = errors.New("names nothing")
	}
	return out, err
}

// readAdvertise takes the port of Bind if the value has none.
func readAdvertise(cfg *cluster.Config, value string) error {
	if ip, err := netip.ParseAddr(value); err == nil && ip.Zone() == "" {
		value = net.JoinHostPort(ip.Unmap().String(), bindPort(cfg))
	}
	cfg.Advertise = value
	return nil
}

func bindPort(cfg *cluster.Config) string {
	if _, port, err := net.SplitHostPort(cfg.Bind); err == nil {
		return port
	}
	return "0"
}

// podIP sets Advertise from the variable that Kubernetes manifests set by custom. A
// Bind to an address of its own needs no such word.
func podIP(cfg *cluster.Config, value string) error {
	host, _, err := net.SplitHostPort(cfg.Bind)
	if value == "" || cfg.Advertise != "" || err != nil {
		return nil
	}
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return nil
	}
	ip, err := netip.ParseAddr(value)
	if err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() || ip.Zone() != "" {
		return &cluster.ConfigError{Field: "POD_IP", Reason: fmt.Sprintf("%q is not an IP address others can reach", value)}
	}
	return readAdvertise(cfg, value)
}

// readSecrets reads the file of secrets. Errors have neither the path nor any byte of
// the file: the value may be the secret itself, put there in place of a path.
func readSecrets(cfg *cluster.Config, path string) error {
	content, err := files.ReadSecret(path)
	if err != nil {
		return fmt.Errorf("the file that it names: %w", err)
	}
	var secrets [][]byte
	number := 0
	for line := range bytes.Lines(content) {
		number++
		line = bytes.TrimSpace(line)
		if i := bytes.IndexFunc(line, func(c rune) bool { return c <= ' ' || c > '~' }); i >= 0 {
			return fmt.Errorf("the file that it names: line %d has a byte that is not printable ASCII", number)
		}
		if len(line) > 0 {
			secrets = append(secrets, line)
		}
	}
	if len(secrets) == 0 {
		return errors.New("the file that it names is empty")
	}
	cfg.Security.Secrets = secrets
	return nil
}

// ofService matches the variables that Kubernetes sets for a Service named wardmote, or
// wardmote-something.
var ofService = regexp.MustCompile(`^WARDMOTE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofCommand are the variables of the command wardmote: two for the programs that it runs,
// and its own way to a cluster.
var ofCommand = []string{prefix + "KEY", prefix + "TOKEN", prefix + "URL"}

// tellOthers tells the variables that nobody reads: those of another meaning, and idle,
// whose fields the program has set. Values are not told: one may be a secret.
func tellOthers(log *slog.Logger, env map[string]string, idle []string) {
	if log == nil {
		return
	}
	var unknown, service []string
	for name := range env {
		known := slices.ContainsFunc(variables, func(v variable) bool { return prefix+v.name == name })
		switch {
		case !strings.HasPrefix(name, prefix) || known || slices.Contains(ofCommand, name):
		case ofService.MatchString(name):
			service = append(service, name)
		default:
			unknown = append(unknown, name)
		}
	}
	tell := func(names []string) string {
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if len(unknown) > 0 {
		log.Warn("unknown variables in the environment", "variables", tell(unknown),
			"next", "correct their names, or remove them: the documentation of wardmote.Env has all names; a secret is read from a file alone")
	}
	if len(service) > 0 {
		log.Info("variables of a Kubernetes service in the environment", "variables", tell(service),
			"next", "nothing, they are not read; enableServiceLinks: false in the pod's spec keeps them away")
	}
	if len(idle) > 0 {
		log.Info("variables without effect", "variables", tell(idle), "next", "nothing: the program sets these fields itself, and wins")
	}
}
