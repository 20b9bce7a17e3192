package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir    = "../../deploy/helm/duly"
	kubeVersion = "v1.34.0"
)

// sets are the values that the chart is rendered with.
var sets = map[string]string{
	"least": `
database: {existingSecret: duly-database}
`,
	"secrets of the chart": `
replicas: 1
migrate: false
database: {url: "postgres://duly@db/duly"}
nats: {url: "nats://n-1:4222,nats://n-2:4222", creds: "-----BEGIN NATS USER JWT-----", replicas: 1, syncAlways: true}
http: {auth: "off"}
podDisruptionBudget: {enabled: false}
networkPolicy: {enabled: false}
preStopSeconds: 0
`,
	"everything": `
replicas: 5
image: {repository: registry.example/duly, tag: 1.2.3, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
nats: {url: "tls://nats:4222", existingSecret: nats, tlsSecret: nats-tls, tlsClient: true, replicas: 3, syncAlways: true}
database: {existingSecret: db}
http: {auth: token, port: 8443, tlsSecret: http-tls}
alertsSecret: alerts
settings: {DULY_PARTITIONS: 64, DULY_LOG_FORMAT: json, DULY_RETAIN_DETAIL: 72h, DULY_CHAIN: true}
drainSeconds: 30
preStopSeconds: 10
networkPolicy:
  from: [{namespaceSelector: {matchLabels: {team: shop}}}]
  egressPorts: [4222]
  extraEgress: [{ports: [{port: 443, protocol: TCP}]}]
serviceMonitor: {enabled: true, interval: 30s, labels: {release: prometheus}}
service: {type: LoadBalancer, annotations: {a: b}}
serviceAccount: {annotations: {c: d}}
podAnnotations: {e: f}
podLabels: {g: h}
nodeSelector: {disk: ssd}
tolerations: [{key: duly, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
`,
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// objects are what a rendering has, decoded.
type objects struct {
	deployment appsv1.Deployment
	secret     corev1.Secret
	service    corev1.Service
	account    corev1.ServiceAccount
	budget     policyv1.PodDisruptionBudget
	policy     networkingv1.NetworkPolicy
	monitor    v1.ServiceMonitor
	kinds      []string
}

// render renders the chart in dir and decodes every object strictly: a field that Kubernetes does not have is an error.
func render(dir string, given map[string]any) (*objects, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, version.String()) {
		return nil, fmt.Errorf("the chart does not want Kubernetes %s", version)
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "shop", Namespace: "duly"}, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	o := &objects{}
	for name, text := range rendered {
		if filepath.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" {
			continue
		}
		if err := o.decode(text); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
		}
	}
	slices.Sort(o.kinds)
	return o, nil
}

func (o *objects) decode(text string) error {
	var head struct{ Kind string }
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return err
	}
	into := map[string]any{
		"Deployment": &o.deployment, "Secret": &o.secret, "Service": &o.service, "ServiceAccount": &o.account,
		"PodDisruptionBudget": &o.budget, "NetworkPolicy": &o.policy, "ServiceMonitor": &o.monitor,
	}[head.Kind]
	if into == nil {
		return fmt.Errorf("kind %q is not known here", head.Kind)
	}
	o.kinds = append(o.kinds, head.Kind)
	return yaml.UnmarshalStrict([]byte(text), into)
}

// TestChart lints and renders the chart, and holds what it renders to the code.
//
// covers: D8
func TestChart(t *testing.T) {
	base := []string{"Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"}
	kinds := map[string][]string{
		"least": base, "everything": append(slices.Clone(base), "ServiceMonitor"),
		"secrets of the chart": {"Deployment", "Secret", "Service", "ServiceAccount"},
	}
	for name, text := range sets {
		t.Run(name, func(t *testing.T) {
			given := values(t, text)
			version, err := chartutil.ParseKubeVersion(kubeVersion)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range lint.AllWithKubeVersion(chartDir, given, "duly", version).Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("helm lint: %v", m)
				}
			}
			o, err := render(chartDir, given)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Sorted(slices.Values(kinds[name]))
			if !slices.Equal(o.kinds, want) {
				t.Errorf("it has %q, want %q", o.kinds, want)
			}
			for _, problem := range o.problems(t) {
				t.Error(problem)
			}
		})
	}
}

// TestRefusedValues: what cannot work is refused before anything is rendered.
func TestRefusedValues(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                             "database",
		"{database: {url: 'mysql://x'}}": "url",
		"{database: {existingSecret: db}, nats: {replicas: 2}}":                        "replicas",
		"{database: {existingSecret: db}, http: {auth: none}}":                         "auth",
		"{database: {existingSecret: db}, http: {port: 80}}":                           "port",
		"{database: {existingSecret: db}, setings: {DULY_CHAIN: true}}":                "setings",
		"{database: {existingSecret: db}, settings: {PATH: /bin}}":                     "PATH",
		"{database: {existingSecret: db}, replicas: none}":                             "replicas",
		"{database: {existingSecret: db}, networkPolicy: {egressPorts: ['nats']}}":     "egressPorts",
		"{database: {existingSecret: db}, serviceMonitor: {enabled: true, path: '/'}}": "serviceMonitor",
	} {
		if _, err := render(chartDir, values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s: %v, want an error that names %s", text, err, want)
		}
	}
}

// TestPlanted changes one thing in a copy of the chart and expects the check to say so.
func TestPlanted(t *testing.T) {
	const deployment = "templates/deployment.yaml"
	for _, fault := range []struct{ name, file, from, to, want string }{
		{"no field of Kubernetes", deployment, "enableServiceLinks", "enableServiceLink", "enableServiceLink"},
		{"unknown setting", deployment, "DULY_STREAM_REPLICAS", "DULY_STREAM_COPIES", "no setting DULY_STREAM_COPIES"},
		{"unknown command", deployment, "args: [serve]", "args: [server]", "args are"},
		{"unknown path", deployment, "path: /readyz", "path: /ready", "readiness probe asks /ready"},
		{"killed in its drain", deployment, "add .Values.preStopSeconds .Values.drainSeconds 10", "add 1 2", "grace period"},
		{"root", deployment, "runAsNonRoot: true", "runAsNonRoot: false", "may be root"},
		{"writable", "templates/_helpers.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "can be written"},
		{"open door", deployment, "- name: DULY_AUTH\n", "- name: DULY_HTTP_URL\n", "auth is off"},
		{"a file that is not mounted", deployment, "value: /etc/duly/nats/nats.creds", "value: /etc/nats.creds", "is mounted at"},
		{"a volume that is not there", deployment, "        - name: nats\n          secret:", "        - name: other\n          secret:", "no volume nats"},
		{"other pods", "templates/service.yaml", `include "duly.selector" . | nindent 4`, `dict "app" "other" | toYaml | nindent 4`, "does not select"},
		{"a wish at once of all", deployment, "maxUnavailable: 0", "maxUnavailable: 3", "takes nodes away"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "duly")
			if err := os.CopyFS(dir, os.DirFS(chartDir)); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(dir, fault.file)
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.ReplaceAll(text, []byte(fault.from), []byte(fault.to))
			if bytes.Equal(changed, text) {
				t.Fatalf("%s has no %q to plant a fault in", fault.file, fault.from)
			}
			if err := os.WriteFile(at, changed, 0o644); err != nil {
				t.Fatal(err)
			}
			var said []string
			o, err := render(dir, values(t, sets["everything"]))
			if err != nil {
				said = append(said, err.Error())
			} else {
				said = o.problems(t)
			}
			if !slices.ContainsFunc(said, func(p string) bool { return strings.Contains(p, fault.want) }) {
				t.Errorf("it says %q, want something with %q", said, fault.want)
			}
		})
	}
}

// TestVersions: the chart installs the version that the program has.
func TestVersions(t *testing.T) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	source, err := fs.ReadFile(os.DirFS("../.."), "cmd/duly/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(source, []byte(`"`+chart.AppVersion()+`-dev"`)) {
		t.Error(errors.New("the chart's appVersion is not that of cmd/duly: " + chart.AppVersion()))
	}
}
