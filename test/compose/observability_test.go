package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// TestObservability: the profile observability loads beside each of the others, its images are fixed, its files are there,
// its ports are on loopback, and Prometheus asks services that there are, at the port of the code.
//
// covers: D8
func TestObservability(t *testing.T) {
	prometheus, err := os.ReadFile(filepath.Join(root, "deploy", "prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	code := fromCode()
	if !strings.Contains(string(prometheus), fmt.Sprintf("port: %d\n", code.port)) {
		t.Errorf("Prometheus does not ask port %d", code.port)
	}
	m := regexp.MustCompile(`names: \[(.*)\]`).FindSubmatch(prometheus)
	if m == nil {
		t.Fatal("Prometheus asks no services")
	}
	asked, found := strings.Split(string(m[1]), ", "), map[string]bool{}
	for _, profile := range profiles {
		options, err := cli.NewProjectOptions([]string{filepath.Join(root, "compose.yaml")}, cli.WithProfiles([]string{profile, "observability"}))
		if err != nil {
			t.Fatal(err)
		}
		d := &deployment{dir: root, code: code}
		if d.project, err = options.LoadProject(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ports []string
		for _, name := range []string{"prometheus", "grafana"} {
			service, ok := d.project.Services[name]
			if !ok {
				t.Fatalf("profile %s: there is no %s", profile, name)
			}
			d.image(service)
			d.health(service)
			d.waits(service)
			d.mounts(service)
			for _, port := range service.Ports {
				ports = append(ports, fmt.Sprintf("%s:%s:%d", port.HostIP, port.Published, port.Target))
			}
		}
		for _, problem := range d.problems {
			t.Errorf("profile %s: %s", profile, problem)
		}
		if want := []string{"127.0.0.1:9090:9090", "127.0.0.1:3000:3000"}; !slices.Equal(ports, want) {
			t.Errorf("profile %s: published ports are %q, want %q", profile, ports, want)
		}
		for _, name := range asked {
			if _, there := d.project.Services[name]; there && d.answers(d.project.Services["prometheus"], name) {
				found[name] = true
			}
		}
		for name, service := range d.project.Services { // every node is asked
			if len(rolesOf(service)) > 0 && !slices.Contains(asked, name) {
				t.Errorf("profile %s: Prometheus does not ask %s", profile, name)
			}
		}
	}
	for _, name := range asked {
		if !found[name] {
			t.Errorf("Prometheus asks %s, which it cannot reach, or which is not there", name)
		}
	}
}
