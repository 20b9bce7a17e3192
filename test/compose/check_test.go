package compose

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// deployment is a folder with compose.yaml and what it refers to, and the
// problems found in it.
type deployment struct {
	dir      string
	code     contract
	project  *types.Project
	problems []string
}

// check loads the deployment in dir and returns every problem with it.
func check(ctx context.Context, dir string, code contract) []string {
	d := deployment{dir: dir, code: code}
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")})
	if err != nil {
		return []string{err.Error()}
	}
	if d.project, err = options.LoadProject(ctx); err != nil {
		return []string{err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(d.project.Services)) {
		service := d.project.Services[name]
		d.image(service)
		d.health(service)
		d.waits(service)
		d.mounts(service)
		if service.Build != nil {
			d.environment(service)
			d.roles(service)
			d.flags(service)
		}
	}
	d.published()
	d.crew()
	d.nats()
	d.dockerfile()
	return d.problems
}

func (d *deployment) problem(format string, args ...any) {
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

// exactTag is a tag with major, minor and patch, and perhaps a variant.
var exactTag = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

func (d *deployment) image(service types.ServiceConfig) {
	if !exactTag.MatchString(service.Image) {
		d.problem("%s: image %q is not at an exact patch version", service.Name, service.Image)
	}
}

// oneShot is a service that others wait for to end.
func (d *deployment) oneShot(name string) bool {
	for _, other := range d.project.Services {
		if on, ok := other.DependsOn[name]; ok && on.Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}

// health asks for a check on everything that stays up, and that ours is the
// binary's own: its image has no other program.
func (d *deployment) health(service types.ServiceConfig) {
	if d.oneShot(service.Name) {
		return
	}
	probe := service.HealthCheck
	if probe == nil || probe.Disable || len(probe.Test) < 2 || probe.Test[0] == "NONE" {
		d.problem("%s: stays up without a health check", service.Name)
		return
	}
	if service.Build != nil && !slices.Equal(probe.Test, []string{"CMD", "/duly", "health"}) {
		d.problem("%s: health check is %q, want /duly health", service.Name, probe.Test[1:])
	}
	d.healthURLs(service)
}

// healthURLs holds URLs of our own port to the paths that the code serves.
func (d *deployment) healthURLs(service types.ServiceConfig) {
	for _, word := range service.HealthCheck.Test {
		at, err := url.Parse(word)
		if err != nil || at.Port() != strconv.FormatUint(uint64(d.code.port), 10) {
			continue
		}
		if !slices.Contains(d.code.healthPaths, at.Path) {
			d.problem("%s: health path %s is not served", service.Name, at.Path)
		}
	}
}

// waits asks that nobody merely waits for a start: a container that has started
// is not yet a server that answers.
func (d *deployment) waits(service types.ServiceConfig) {
	for name, on := range service.DependsOn {
		switch on.Condition {
		case types.ServiceConditionHealthy, types.ServiceConditionCompletedSuccessfully:
		default:
			d.problem("%s: waits for %s with %s", service.Name, name, on.Condition)
		}
	}
}

// mounts asks for declared, named volumes and for files that exist.
func (d *deployment) mounts(service types.ServiceConfig) {
	for _, volume := range service.Volumes {
		switch volume.Type {
		case types.VolumeTypeBind:
			info, err := os.Stat(volume.Source)
			if err != nil || info.IsDir() {
				d.problem("%s: mounted file %s is not there", service.Name, filepath.Base(volume.Source))
			}
			if !volume.ReadOnly {
				d.problem("%s: mounted file %s can be written", service.Name, filepath.Base(volume.Source))
			}
		case types.VolumeTypeVolume:
			if volume.Source == "" {
				d.problem("%s: anonymous volume at %s", service.Name, volume.Target)
			}
		}
	}
}

func (d *deployment) environment(service types.ServiceConfig) {
	for _, name := range slices.Sorted(maps.Keys(service.Environment)) {
		if !slices.Contains(d.code.envs, name) {
			d.problem("%s: the code knows no environment name %s", service.Name, name)
		}
	}
	d.listens(service)
	d.reaches(service, "NATS_URL", "4222")
	d.reaches(service, "DATABASE_URL", "26257")
}

// listens holds the address of a service that stays up to the code's port: its
// health check asks there.
func (d *deployment) listens(service types.ServiceConfig) {
	if d.oneShot(service.Name) {
		return
	}
	address := service.Environment["DULY_HTTP_ADDR"]
	if address == nil {
		return
	}
	_, port, err := net.SplitHostPort(*address)
	if err != nil || port != strconv.FormatUint(uint64(d.code.port), 10) {
		d.problem("%s: DULY_HTTP_ADDR is %q, want port %d", service.Name, *address, d.code.port)
	}
}

// reaches asks that the host of an address is a service of this file, at the port
// that its server has by default.
func (d *deployment) reaches(service types.ServiceConfig, name, port string) {
	value := service.Environment[name]
	if value == nil {
		return
	}
	at, err := url.Parse(*value)
	if err != nil {
		d.problem("%s: %s is no URL", service.Name, name)
		return
	}
	if _, ok := d.project.Services[at.Hostname()]; !ok {
		d.problem("%s: %s names %q, which is no service here", service.Name, name, at.Hostname())
	}
	if at.Port() != port {
		d.problem("%s: %s has port %s, want %s", service.Name, name, at.Port(), port)
	}
}

func (d *deployment) roles(service types.ServiceConfig) {
	for _, role := range rolesOf(service) {
		if !slices.Contains(d.code.roles, role) {
			d.problem("%s: the code knows no role %q", service.Name, role)
		}
	}
}

// rolesOf reads a service's roles from its environment and its command.
func rolesOf(service types.ServiceConfig) []string {
	var lists []string
	if value := service.Environment["DULY_ROLES"]; value != nil {
		lists = append(lists, *value)
	}
	for i, word := range service.Command {
		name, value, joined := strings.Cut(word, "=")
		switch {
		case name != "--roles":
		case joined:
			lists = append(lists, value)
		case i+1 < len(service.Command):
			lists = append(lists, service.Command[i+1])
		}
	}
	var roles []string
	for _, list := range lists {
		for role := range strings.SplitSeq(list, ",") {
			roles = append(roles, strings.TrimSpace(role))
		}
	}
	return roles
}

func (d *deployment) flags(service types.ServiceConfig) {
	for _, word := range service.Command {
		flag, ok := strings.CutPrefix(word, "--")
		if !ok {
			continue
		}
		flag, _, _ = strings.Cut(flag, "=")
		if !slices.Contains(d.code.flags, flag) {
			d.problem("%s: the code knows no flag --%s", service.Name, flag)
		}
	}
}

// published asks for one port on the host, the code's own.
func (d *deployment) published() {
	want := strconv.FormatUint(uint64(d.code.port), 10)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.project.Services)) {
		for _, port := range d.project.Services[name].Ports {
			all = append(all, name+" "+port.Published)
			if port.Published != want || port.Target != d.code.port {
				d.problem("%s: publishes %s to %d, want %s to %s", name, port.Published, port.Target, want, want)
			}
		}
	}
	if len(all) != 1 {
		d.problem("published ports are %q, want one", all)
	}
}

// crew asks that every role a pipeline needs runs somewhere.
func (d *deployment) crew() {
	var present []string
	for _, service := range d.project.Services {
		present = append(present, rolesOf(service)...)
	}
	for _, role := range []string{"ingest", "scheduler", "supervisor"} {
		if !slices.Contains(present, role) {
			d.problem("no service runs the role %s", role)
		}
	}
}
