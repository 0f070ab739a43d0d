package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// compose is the part of the Compose specification that the file uses. Fields of another
// name are refused.
type compose struct {
	Name        string
	Environment any `json:"x-environment"` // for the services alone, as is the next one
	Orders      any `json:"x-orders"`
	Services    map[string]*composeService
	Networks    map[string]struct {
		IPAM struct {
			Config []struct{ Subnet string }
		} `json:"ipam"`
	}
	Secrets map[string]struct{ File string }
}

type composeService struct {
	Image           string
	Build           struct{ Context, Dockerfile string }
	User            string
	Environment     map[string]string
	Secrets         []string
	Restart         string
	StopGracePeriod string `json:"stop_grace_period"`
	Healthcheck     struct {
		Test              []string
		Interval, Timeout string
		Retries           int
		StartPeriod       string `json:"start_period"`
	}
	ReadOnly    bool     `json:"read_only"`
	CapDrop     []string `json:"cap_drop"`
	SecurityOpt []string `json:"security_opt"`
	Networks    map[string]struct {
		IPv4 string `json:"ipv4_address"`
	}
	Ports []string
}

func readCompose() (*compose, error) {
	content, err := os.ReadFile("compose.yaml")
	if err != nil {
		return nil, err
	}
	c := new(compose)
	return c, yaml.UnmarshalStrict(content, c)
}

func (s *composeService) env() (env []string) {
	for name, value := range s.Environment {
		env = append(env, name+"="+value)
	}
	return env
}

func TestTheComposeFileKeepsItsRules(t *testing.T) {
	c, err := readCompose()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 3 {
		t.Errorf("%d services", len(c.Services))
	}
	for name, s := range c.Services {
		cfg, err := configure(t, s.env())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, port, _ := strings.Cut(cfg.Bind, ":")
		if own := s.Networks["orders"].IPv4 + ":" + port; !slices.Contains(cfg.Join, own) || len(cfg.Join) != len(c.Services) {
			t.Errorf("%s at %s: Join is %q", name, own, cfg.Join)
		}
		if cfg.Name != name || !cfg.Recovery.JoinIsComplete || cfg.InitialSize != len(c.Services) {
			t.Errorf("%s: %v", name, cfg)
		}
		if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace <= 10*time.Second {
			t.Errorf("%s is killed after %s", name, s.StopGracePeriod)
		}
		if s.Environment["WARDMOTE_SECRET_FILE"] != "/run/secrets/"+s.Secrets[0] {
			t.Errorf("%s has its secret elsewhere: %q", name, s.Secrets)
		}
	}
}
