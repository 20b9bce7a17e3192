package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/promql/parser"

	"duly.dev/duly/internal/telemetry"
)

const (
	dashboardFile = "../../deploy/grafana/duly.json"
	rulesFile     = "../../deploy/prometheus/rules.yml"
)

// expression is one expression of a file, and where it stands.
type expression struct{ where, text string }

// dashboard is what of Grafana's JSON matters here.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

func readDashboard(data []byte) (dashboard, []expression, error) {
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return d, nil, err
	}
	var all []expression
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, expression{p.Title, target.Expr})
		}
	}
	return d, all, nil
}

// rules is Prometheus's file of rules.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(data []byte) (rules, []expression, error) {
	var r rules
	if err := yaml.Unmarshal(data, &r); err != nil {
		return r, nil, err
	}
	var all []expression
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			all = append(all, expression{rule.Alert, rule.Expr})
		}
	}
	return r, all, nil
}

// foreign are metrics that are not Duly's own: of the Go runtime, of the process, and of Prometheus itself.
var foreign = []string{"up", "go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes"}

// grafanaVariables are what Grafana puts in before it asks.
var grafanaVariables = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")

// problems of an expression: it does not parse, or names a metric or a label that no node has.
func problems(e expression) (found []string, metrics []string) {
	bad := func(format string, args ...any) { found = append(found, e.where+": "+fmt.Sprintf(format, args...)) }
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(grafanaVariables.Replace(e.text))
	if err != nil {
		bad("%v", err)
		return found, nil
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := selector.Name
		if slices.Contains(foreign, name) {
			return nil
		}
		m, known := metricOf(name)
		if !known {
			bad("no node has a metric %s", name)
			return nil
		}
		metrics = append(metrics, m.Name)
		for _, l := range selector.LabelMatchers {
			if l.Name != "__name__" && l.Name != "instance" && l.Name != "job" && !slices.Contains(m.Labels, l.Name) {
				bad("%s has no label %s", m.Name, l.Name)
			}
		}
		return nil
	})
	return found, metrics
}

// metricOf finds the metric of a series.
func metricOf(series string) (telemetry.Metric, bool) {
	for _, m := range telemetry.Metrics() {
		if m.Name == series || m.Kind == telemetry.Histogram && slices.Contains([]string{m.Name + "_bucket", m.Name + "_sum", m.Name + "_count"}, series) {
			return m, true
		}
	}
	return telemetry.Metric{}, false
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDashboard: every expression of the dashboard parses and names metrics and labels that nodes have; no panel lies on
// another, and all that matters is shown.
func TestDashboard(t *testing.T) {
	d, all, err := readDashboard(read(t, dashboardFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Errorf("%d expressions", len(all))
	}
	shown := map[string]bool{}
	for _, e := range all {
		found, metrics := problems(e)
		for _, problem := range found {
			t.Error(problem)
		}
		for _, name := range metrics {
			shown[name] = true
		}
	}
	// What the dashboard need not show: what is a limit, or counted elsewhere.
	for _, m := range telemetry.Metrics() {
		unshown := []string{"duly_build_info", "duly_supervisor_leads", "duly_overdue_asked_total", "duly_duplicates_total", "duly_rows_refused_total", "duly_endings_republished_total",
			"duly_nats_connected", "duly_nats_bytes_total", "duly_database_connections_max", "duly_database_connections_idle", "duly_database_waits_total", "duly_database_queries_total"}
		if shown[m.Name] == slices.Contains(unshown, m.Name) {
			t.Errorf("%s: shown is %v", m.Name, shown[m.Name])
		}
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d is there twice", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q or off the grid", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// labelOfTemplate finds the labels that an annotation shows.
var labelOfTemplate = regexp.MustCompile(`\$labels\.(\w+)`)

// TestRules: every alert rule parses and names metrics and labels that nodes have, and says what it means.
func TestRules(t *testing.T) {
	r, all, err := readRules(read(t, rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 12 {
		t.Errorf("%d rules", len(all))
	}
	for _, e := range all {
		found, _ := problems(e)
		for _, problem := range found {
			t.Error(problem)
		}
	}
	for _, g := range r.Groups {
		names := map[string]bool{}
		for _, rule := range g.Rules {
			if names[rule.Alert] || !strings.HasPrefix(rule.Alert, "Duly") {
				t.Errorf("%s is there twice, or is no name of ours", rule.Alert)
			}
			names[rule.Alert] = true
			if rule.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]) {
				t.Errorf("%s: %+v", rule.Alert, rule)
			}
			for _, m := range labelOfTemplate.FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				if strings.Contains(rule.Expr, "sum(") || strings.Contains(rule.Expr, " by (") && !strings.Contains(rule.Expr, m[1]) {
					t.Errorf("%s shows the label %s, which its expression adds up", rule.Alert, m[1])
				}
			}
		}
	}
}

// TestPlanted shows that the checks above can fail.
func TestPlanted(t *testing.T) {
	for expr, want := range map[string]string{
		`duly_commit_total`:                                      "no node has a metric duly_commit_total",
		`rate(duly_commits_total[5m]`:                            "unclosed left parenthesis",
		`duly_commits_total{type="x"}`:                           "duly_commits_total has no label type",
		`duly_commits_total_bucket`:                              "no node has a metric",
		`histogram_quantile(0.9, duly_commit_cycle_secs_bucket)`: "no node has a metric",
		`rate(duly_window)`:                                      "expected type range vector",
	} {
		found, _ := problems(expression{"planted", expr})
		if len(found) == 0 || !strings.Contains(strings.Join(found, "; "), want) {
			t.Errorf("%s: %q, want %q", expr, found, want)
		}
	}
	if found, metrics := problems(expression{"good", `rate(duly_commit_cycle_seconds_bucket{instance=~"$instance"}[$__rate_interval])`}); len(found) > 0 || len(metrics) != 1 {
		t.Errorf("%q %q", found, metrics)
	}
	if _, _, err := readDashboard([]byte("{")); err == nil {
		t.Error("a broken dashboard is read")
	}
	if _, _, err := readRules([]byte("groups: {")); err == nil {
		t.Error("broken rules are read")
	}
}
