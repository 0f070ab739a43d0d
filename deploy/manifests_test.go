package deploy

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
)

// manifest is a file for kubectl apply.
type manifest struct {
	services    []*corev1.Service
	deployment  *appsv1.Deployment
	statefulSet *appsv1.StatefulSet
	budget      *policyv1.PodDisruptionBudget
	policy      *networkingv1.NetworkPolicy
}

// readManifest refuses a field that Kubernetes does not know, and a second object of one
// kind, services apart.
func readManifest(content []byte) (*manifest, error) {
	m := new(manifest)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		var into any
		second := false
		switch kind.APIVersion + " " + kind.Kind {
		case " ": // a comment alone
			continue
		case "v1 Service":
			m.services = append(m.services, new(corev1.Service))
			into = m.services[len(m.services)-1]
		case "apps/v1 Deployment":
			second, m.deployment = m.deployment != nil, new(appsv1.Deployment)
			into = m.deployment
		case "apps/v1 StatefulSet":
			second, m.statefulSet = m.statefulSet != nil, new(appsv1.StatefulSet)
			into = m.statefulSet
		case "policy/v1 PodDisruptionBudget":
			second, m.budget = m.budget != nil, new(policyv1.PodDisruptionBudget)
			into = m.budget
		case "networking.k8s.io/v1 NetworkPolicy":
			second, m.policy = m.policy != nil, new(networkingv1.NetworkPolicy)
			into = m.policy
		default:
			return nil, fmt.Errorf("a document of kind %q %q", kind.APIVersion, kind.Kind)
		}
		if second {
			return nil, fmt.Errorf("a second %s", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	if (m.deployment == nil) == (m.statefulSet == nil) || m.budget == nil || m.policy == nil {
		return nil, fmt.Errorf("want one Deployment or StatefulSet, a budget and a policy")
	}
	return m, nil
}

func (m *manifest) replicas() int {
	if m.deployment != nil {
		return int(*m.deployment.Spec.Replicas)
	}
	return int(*m.statefulSet.Spec.Replicas)
}

func (m *manifest) template() *corev1.PodTemplateSpec {
	if m.deployment != nil {
		return &m.deployment.Spec.Template
	}
	return &m.statefulSet.Spec.Template
}

// members is the headless service.
func (m *manifest) members() *corev1.Service {
	i := slices.IndexFunc(m.services, func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
	if i < 0 {
		return new(corev1.Service)
	}
	return m.services[i]
}

// environment is the container's, for a pod of this name and address.
func environment(c *corev1.Container, pod, ip, node string) (env []string, err error) {
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			switch {
			case e.ValueFrom.FieldRef == nil:
				return nil, fmt.Errorf("%s is from no field", e.Name)
			case e.ValueFrom.FieldRef.FieldPath == "status.podIP":
				value = ip
			case e.ValueFrom.FieldRef.FieldPath == "metadata.name":
				value = pod
			case e.ValueFrom.FieldRef.FieldPath == "spec.nodeName":
				value = node
			default:
				return nil, fmt.Errorf("%s is from an unknown field", e.Name)
			}
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// configure has package wardmote read the environment, as Main does, with a secret in
// place of the file in a container.
func configure(t *testing.T, env []string) (cluster.Config, error) {
	t.Helper()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "WARDMOTE_") || name == "POD_IP" {
			t.Setenv(name, "") // set again at the end of the test
			os.Unsetenv(name)
		}
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if name == "WARDMOTE_SECRET_FILE" {
			value = filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(value, []byte("a-test-has-no-secret-and-these-bytes-are-for-show"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(name, value)
	}
	var log bytes.Buffer
	cfg, err := wardmote.Env(cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil && strings.Contains(log.String(), "unknown variables") {
		err = fmt.Errorf("%s", log.String())
	}
	if err == nil {
		err = cfg.Check()
	}
	return cfg, err
}

// check returns the broken rules of the manifest.
func (m *manifest) check(t *testing.T) (broken []string) {
	rule := func(holds bool, text string, args ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(text, args...))
		}
	}
	pod, members := &m.template().Spec, m.members()
	if len(pod.Containers) != 1 {
		return []string{"want one container"}
	}
	c := &pod.Containers[0]
	env, err := environment(c, "orders-abc", "10.1.2.3", "node-1")
	if err != nil {
		return []string{err.Error()}
	}
	cfg, err := configure(t, env)
	if err != nil {
		return []string{err.Error()}
	}

	// The members find each other.
	_, port, _ := strings.Cut(cfg.Bind, ":")
	rule(cfg.Advertise == "10.1.2.3:"+port, "others are told %q", cfg.Advertise)
	rule(slices.Equal(cfg.Join, []string{members.Name + ":" + port}), "Join is %q, and the headless service %q", cfg.Join, members.Name)
	rule(members.Spec.PublishNotReadyAddresses, "the members' service leaves out pods that are not ready")
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		rule(slices.ContainsFunc(members.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == protocol && fmt.Sprint(p.Port) == port }),
			"the members' service has no port %s of %s", port, protocol)
		rule(slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.Protocol == protocol && fmt.Sprint(p.ContainerPort) == port
		}),
			"the container has no port %s of %s", port, protocol)
		first := m.policy.Spec.Ingress[0]
		rule(slices.ContainsFunc(first.Ports, func(p networkingv1.NetworkPolicyPort) bool { return *p.Protocol == protocol && p.Port.String() == port }),
			"the policy keeps members from each other by %s", protocol)
		rule(len(first.From) == 1 && matches(first.From[0].PodSelector, m), "the policy lets others than members in")
	}
	for _, s := range m.services {
		rule(labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(m.template().Labels)), "the service %s selects other pods", s.Name)
	}
	rule(matches(m.budget.Spec.Selector, m), "the budget selects other pods")
	rule(matches(&m.policy.Spec.PodSelector, m), "the policy selects other pods")
	rule(len(cfg.Security.Secrets) > 0, "no secret")
	rule(cfg.Cluster != "", "no name of the cluster")

	// Enough remain.
	n := m.replicas()
	rule(n%2 == 1 && n >= 3, "%d pods bear no more than %d", n, n-1)
	rule(m.budget.Spec.MaxUnavailable.IntValue() >= 1 && m.budget.Spec.MaxUnavailable.IntValue() <= (n-1)/2,
		"the budget lets %v of %d go", m.budget.Spec.MaxUnavailable, n)
	rule(m.budget.Spec.UnhealthyPodEvictionPolicy != nil && *m.budget.Spec.UnhealthyPodEvictionPolicy == policyv1.IfHealthyBudget,
		"a drain may take all pods of a cluster without a quorum")
	for _, s := range pod.TopologySpreadConstraints {
		rule(s.MaxSkew == 1 && s.TopologyKey == "kubernetes.io/hostname" && matches(s.LabelSelector, m), "pods are not spread over nodes")
	}
	rule(len(pod.TopologySpreadConstraints) == 1, "pods are not spread")

	// The end takes ten seconds, after the work's.
	rule(*pod.TerminationGracePeriodSeconds > 10, "the process is killed before it has ended")
	rule(pod.EnableServiceLinks != nil && !*pod.EnableServiceLinks, "variables of services come in")

	// Probes speak to the program's port, and the policy lets them.
	web := fmt.Sprint(portOf(c, "http"))
	for path, p := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		rule(p != nil && p.HTTPGet != nil && p.HTTPGet.Path == path && p.HTTPGet.Port.StrVal == "http", "no probe of %s at the port http", path)
	}
	rule(web == "8080", "the program listens on 8080 by default, and its port is %s", web)
	last := m.policy.Spec.Ingress[len(m.policy.Spec.Ingress)-1]
	rule(len(last.From) == 0 && len(last.Ports) == 1 && last.Ports[0].Port.String() == web, "the policy keeps probes out")

	// A process without rights.
	s := pod.SecurityContext
	rule(*s.RunAsNonRoot && *s.RunAsUser != 0 && s.FSGroup != nil, "the process may be root, or cannot read the secret")
	rule(*c.SecurityContext.ReadOnlyRootFilesystem && !*c.SecurityContext.AllowPrivilegeEscalation, "the process may change its image, or its rights")
	rule(c.Resources.Limits.Cpu().IsZero() && !c.Resources.Requests.Cpu().IsZero(), "the CPU is limited, or none is kept")
	rule(!c.Resources.Limits.Memory().IsZero(), "the memory is not limited")

	if d := m.deployment; d != nil {
		rule(cfg.Dir == "" && cfg.Recovery.JoinIsComplete, "a Deployment is in memory, and its Join is complete")
		rule(cfg.InitialSize > n/2 && cfg.InitialSize <= n, "%d of %d pods found a cluster", cfg.InitialSize, n)
		r := d.Spec.Strategy.RollingUpdate
		rule(r.MaxUnavailable.IntValue() == 0 && r.MaxSurge.IntValue() == 1, "a pod goes before its successor is ready, or many come at once")
		rule(d.Spec.MinReadySeconds > 0, "a pod counts as soon as it is ready")
		rule(time.Duration(*d.Spec.ProgressDeadlineSeconds)*time.Second > 2*time.Minute, "a first start counts as a failure")
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			rule(toleration(pod, key) < 300*time.Second, "a pod of a lost node is replaced late: %s", key)
		}
		return broken
	}
	set := m.statefulSet
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", set.Name, i))
	}
	rule(slices.Equal(cfg.Founders, names), "the founders are %q, the pods %q", cfg.Founders, names)
	rule(set.Spec.ServiceName == members.Name, "the pods' names are in another service")
	rule(set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement, "the second pod waits for the first, which waits for a majority")
	rule(set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled == appsv1.RetainPersistentVolumeClaimRetentionPolicyType, "scale to zero deletes the volumes")
	below := slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
		return strings.HasPrefix(cfg.Dir, v.MountPath+"/") && v.Name == set.Spec.VolumeClaimTemplates[0].Name
	})
	rule(below, "Dir %q is not below the volume", cfg.Dir)
	return broken
}

func matches(s *metav1.LabelSelector, m *manifest) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(m.template().Labels))
}

func portOf(c *corev1.Container, name string) int32 {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

// toleration is how long a pod stays on a node with the taint.
func toleration(pod *corev1.PodSpec, key string) time.Duration {
	for _, tt := range pod.Tolerations {
		if tt.Key == key && tt.TolerationSeconds != nil {
			return time.Duration(*tt.TolerationSeconds) * time.Second
		}
	}
	return 300 * time.Second // by default
}

func TestManifestsKeepTheirRules(t *testing.T) {
	for _, name := range []string{"memory.yaml", "dir.yaml"} {
		content, err := os.ReadFile(filepath.Join("kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := readManifest(content)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, b := range m.check(t) {
			t.Errorf("%s: %s", name, b)
		}
	}
}

// Each change breaks one manifest, and is found.
func TestABrokenManifestIsFound(t *testing.T) {
	for _, tt := range []struct{ file, from, to, want string }{
		{"memory.yaml", "publishNotReadyAddresses: true", "publishNotReadyAddress: true", "unknown field"},
		{"memory.yaml", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "leaves out"},
		{"memory.yaml", "name: WARDMOTE_JOIN_IS_COMPLETE", "name: WARDMOTE_JOIN_COMPLETE", "unknown variables"},
		{"memory.yaml", "value: 10s", "value: 10", "TTL"},
		{"memory.yaml", "value: orders-members:7946", "value: orders:7946", "headless"},
		{"memory.yaml", "maxUnavailable: 1", "maxUnavailable: 3", "the budget lets"},
		{"memory.yaml", "replicas: 5", "replicas: 4", "bear no more"},
		{"memory.yaml", "maxSurge: 1", "maxSurge: 3", "many come at once"},
		{"memory.yaml", `value: ":7946"`, `value: ":7947"`, "no port 7947"},
		{"memory.yaml", "path: /livez", "path: /readyz", "no probe of /livez"},
		{"memory.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 10", "killed before"},
		{"memory.yaml", "cpu: 100m", "cpu: 100n0", "parse quantity"},
		{"dir.yaml", "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady", "second pod waits"},
		{"dir.yaml", "replicas: 3", "replicas: 5", "the founders are"},
		{"dir.yaml", "/data/wardmote", "/data", "not below the volume"},
		{"dir.yaml", "        - port: 7946\n          protocol: UDP", "        - port: 7946\n          protocol: SCTP", "by UDP"},
	} {
		content, err := os.ReadFile(filepath.Join("kubernetes", tt.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(content), tt.from, tt.to, 1)
		if changed == string(content) {
			t.Errorf("%s has no %q: correct this test", tt.file, tt.from)
			continue
		}
		m, err := readManifest([]byte(changed))
		found := fmt.Sprint(err)
		if err == nil {
			found = strings.Join(m.check(t), "\n")
		}
		if !strings.Contains(found, tt.want) {
			t.Errorf("%s with %q: found %q, want %q", tt.file, tt.to, found, tt.want)
		}
	}
}
