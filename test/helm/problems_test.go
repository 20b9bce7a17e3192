package helm

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// endMargin is what a node may need beyond its drain until it has ended.
const endMargin = time.Second

// problems holds what was rendered to the code that it starts.
func (o *objects) problems(t *testing.T) (all []string) {
	problem := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	pod := o.deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		return []string{"a pod has not one container"}
	}
	c := pod.Containers[0]
	if !slices.Equal(c.Args, []string{"serve"}) {
		problem("args are %q, want serve", c.Args)
	}
	for _, init := range pod.InitContainers {
		if !slices.Equal(init.Args, []string{"migrate"}) || init.Image != c.Image {
			problem("%s starts %q of %s", init.Name, init.Args, init.Image)
		}
	}
	cfg, said := configOf(t, c.Env)
	all = append(all, said...)
	var sleep int64
	if c.Lifecycle != nil {
		sleep = c.Lifecycle.PreStop.Sleep.Seconds
	}
	need := time.Duration(sleep)*time.Second + cfg.Drain + endMargin
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < need {
		problem("the grace period is %v, a stop may take %v", grace, need)
	}
	all = append(all, probes(c, cfg)...)
	all = append(all, confined(pod)...)
	all = append(all, files(pod, cfg)...)
	if s := o.deployment.Spec.Strategy.RollingUpdate; s == nil || s.MaxUnavailable.IntValue() != 0 {
		problem("an update takes nodes away before others are ready")
	}
	return append(all, o.selected()...)
}

// configOf parses the environment as a node does. Names that no setting has are problems.
func configOf(t *testing.T, env []corev1.EnvVar) (cfg config.Config, all []string) {
	var parsed struct {
		config.Config `embed:""`
	}
	known := map[string]bool{}
	for _, s := range config.Settings() {
		known[s.Env] = true
	}
	for _, e := range env {
		if !known[e.Name] {
			all = append(all, "there is no setting "+e.Name)
		}
		value := e.Value
		if e.ValueFrom != nil {
			value = "postgres://duly@db/duly" // of a Secret
		}
		t.Setenv(e.Name, value)
	}
	parser, err := kong.New(&parsed)
	if err == nil {
		_, err = parser.Parse(nil)
	}
	if err == nil {
		err = parsed.Validate()
	}
	if err != nil {
		all = append(all, err.Error())
	}
	return parsed.Config, all
}

func probes(c corev1.Container, cfg config.Config) (all []string) {
	for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		want := "/healthz"
		if name == "readiness" {
			want = "/readyz"
		}
		if p == nil || p.HTTPGet == nil {
			all = append(all, "no "+name+" probe")
			continue
		}
		if p.HTTPGet.Path != want || !slices.Contains(node.HealthPaths, p.HTTPGet.Path) {
			all = append(all, name+" probe asks "+p.HTTPGet.Path)
		}
		if secure := p.HTTPGet.Scheme == corev1.URISchemeHTTPS; secure != (cfg.TLSCert != "") {
			all = append(all, name+" probe and node do not agree about TLS")
		}
	}
	if len(c.Ports) != 1 || cfg.HTTPAddr != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) {
		all = append(all, "the container's port is not where the node listens")
	}
	return all
}

// confined asks that no container may do what it need not.
func confined(pod corev1.PodSpec) (all []string) {
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil {
		all = append(all, "the pod may be root, or call what it wants")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		all = append(all, "the pod has a token of the API")
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			all = append(all, c.Name+": the file system can be written")
			continue
		}
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
			all = append(all, c.Name+" has rights")
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			all = append(all, c.Name+" asks for no resources")
		}
	}
	return all
}

// files asks that every file that the node reads is mounted, from a volume that is there.
func files(pod corev1.PodSpec, cfg config.Config) (all []string) {
	c := pod.Containers[0]
	for _, file := range []string{cfg.NATSCreds, cfg.NATSCA, cfg.NATSCert, cfg.NATSKey, cfg.TLSCert, cfg.TLSKey} {
		if file != "" && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(file) }) {
			all = append(all, "nothing is mounted at "+path.Dir(file))
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			all = append(all, "there is no volume "+m.Name)
		}
	}
	return all
}

// selected asks that service, budget, policy and monitor mean the pods.
func (o *objects) selected() (all []string) {
	pod := labels.Set(o.deployment.Spec.Template.Labels)
	check := func(what string, s *metav1.LabelSelector, of labels.Set) {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(of) {
			all = append(all, what+" does not select what it should")
		}
	}
	check("the deployment", o.deployment.Spec.Selector, pod)
	check("the service", &metav1.LabelSelector{MatchLabels: o.service.Spec.Selector}, pod)
	if slices.Contains(o.kinds, "PodDisruptionBudget") {
		check("the budget", o.budget.Spec.Selector, pod)
	}
	if slices.Contains(o.kinds, "NetworkPolicy") {
		check("the policy", &o.policy.Spec.PodSelector, pod)
	}
	if slices.Contains(o.kinds, "ServiceMonitor") {
		check("the monitor", &o.monitor.Spec.Selector, o.service.Labels)
		if len(o.monitor.Spec.Endpoints) != 1 || o.monitor.Spec.Endpoints[0].Port != o.service.Spec.Ports[0].Name {
			all = append(all, "the monitor asks another port")
		}
	}
	if strings.TrimSpace(o.deployment.Spec.Template.Spec.ServiceAccountName) != o.account.Name {
		all = append(all, "the pod has another account")
	}
	return all
}
