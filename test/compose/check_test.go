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

// profiles are those of compose.yaml; the first is what a command without one means.
var profiles = []string{"cockroach", "single", "postgres", "cluster", "postgres-cluster"}

// check loads the deployment in dir, under each profile, and returns every problem
// with it.
func check(ctx context.Context, dir string, code contract) []string {
	problems := usual(dir)
	for _, profile := range profiles {
		for _, problem := range checkProfile(ctx, dir, profile, code) {
			problems = append(problems, "profile "+profile+": "+problem)
		}
	}
	return problems
}

// usual asks that a command without a profile starts the first.
func usual(dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, ".env"))
	if err != nil {
		return []string{err.Error()}
	}
	if want := "COMPOSE_PROFILES=" + profiles[0]; !slices.Contains(strings.Split(string(text), "\n"), want) {
		return []string{".env: no line " + want}
	}
	return nil
}

func checkProfile(ctx context.Context, dir, profile string, code contract) []string {
	d := deployment{dir: dir, code: code}
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithProfiles([]string{profile}))
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
	if single, ok := d.project.Services["single"]; ok {
		d.alone(single)
	} else {
		d.crew()
		d.servers()
		d.databases()
	}
	d.dockerfile()
	return d.problems
}

func (d *deployment) problem(format string, args ...any) {
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

// exactTag is a tag with major, minor and patch, and perhaps a variant. PostgreSQL's
// versions have two numbers.
var exactTag = regexp.MustCompile(`^([a-z0-9./-]+:v?\d+\.\d+|postgres:\d+)\.\d+(-[a-z0-9.]+)?$`)

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
	want := []string{"CMD", "/duly", "health"}
	if service.Environment["DULY_URL"] != nil {
		// The health command would ask there.
		want = append(want, "--server", fmt.Sprintf("http://127.0.0.1:%d", d.code.port))
	}
	if service.Build != nil && !slices.Equal(probe.Test, want) {
		d.problem("%s: health check is %q, want %s", service.Name, probe.Test[1:], strings.Join(want[1:], " "))
	}
	d.healthURLs(service)
}

// healthURLs holds URLs of our own port to the paths that the code serves.
func (d *deployment) healthURLs(service types.ServiceConfig) {
	for _, word := range service.HealthCheck.Test {
		at, err := url.Parse(word)
		if err != nil || at.Path == "" || at.Port() != strconv.FormatUint(uint64(d.code.port), 10) {
			continue
		}
		if !slices.Contains(d.code.healthPaths, at.Path) {
			d.problem("%s: health path %s is not served", service.Name, at.Path)
		}
	}
}

// waits asks that no service merely waits for a start: a container that has started
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
	known := d.code.envs
	if slices.Equal(service.Entrypoint, types.ShellCommand{"/drone"}) {
		known = d.code.droneEnvs
	}
	for _, name := range slices.Sorted(maps.Keys(service.Environment)) {
		if !slices.Contains(known, name) {
			d.problem("%s: the code knows no environment name %s", service.Name, name)
		}
	}
	if service.Environment["DULY_NODE_NAME"] != nil {
		d.problem("%s: has a node name, which all would have when it is scaled", service.Name)
	}
	d.listens(service)
	d.reaches(service, "NATS_URL", "4222")
	d.reaches(service, "DATABASE_URL", "26257")
	d.reaches(service, "DULY_URL", strconv.FormatUint(uint64(d.code.port), 10))
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

// reaches asks that the host of an address is a service of this file, on a network
// that both are on, at the port that its server has by default.
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
	if !d.answers(service, at.Hostname()) {
		d.problem("%s: %s names %q, which is no service on its networks", service.Name, name, at.Hostname())
	}
	if at.Port() != port {
		d.problem("%s: %s has port %s, want %s", service.Name, name, at.Port(), port)
	}
}

// answers reports whether a name leads from a service to another.
func (d *deployment) answers(from types.ServiceConfig, name string) bool {
	for _, other := range d.project.Services {
		for network, settings := range other.Networks {
			if _, shared := from.Networks[network]; !shared {
				continue
			}
			if other.Name == name || settings != nil && slices.Contains(settings.Aliases, name) {
				return true
			}
		}
	}
	return false
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
		if service.Command[0] == "dev" {
			continue // not settings of a node: TestCommands asks the binary
		}
		if !slices.Contains(d.code.flags, flag) {
			d.problem("%s: the code knows no flag --%s", service.Name, flag)
		}
	}
}

// published asks for three ports on the host, all on loopback: the front door, NATS
// and the drone's page. Everything else can be scaled.
func (d *deployment) published() {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.project.Services)) {
		for _, port := range d.project.Services[name].Ports {
			all = append(all, fmt.Sprintf("%s:%s:%d", port.HostIP, port.Published, port.Target))
		}
	}
	slices.Sort(all)
	want := []string{
		fmt.Sprintf("127.0.0.1:%d:%d", d.code.port, d.code.port), fmt.Sprintf("127.0.0.1:8080:%d", d.code.port), "127.0.0.1:4222:4222",
	}
	slices.Sort(want)
	if !slices.Equal(all, want) {
		d.problem("published ports are %q, want %q", all, want)
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

// alone asks of the single container that it keeps what it has, and that everyone outside reaches it by the names of
// what it stands for.
func (d *deployment) alone(service types.ServiceConfig) {
	at := slices.Index(service.Command, "--data-dir")
	kept := at > 0 && at+1 < len(service.Command) && slices.ContainsFunc(service.Volumes, func(volume types.ServiceVolumeConfig) bool {
		return volume.Type == types.VolumeTypeVolume && volume.Target == service.Command[at+1]
	})
	if !kept {
		d.problem("%s: no volume at its data directory", service.Name)
	}
	if len(d.project.Services) != 2 {
		d.problem("profile single has %d services, want itself and the example", len(d.project.Services))
	}
}

// databases asks for one database, or for three beside three NATS servers; every node then asks for the one of them that
// can be written to.
func (d *deployment) databases() {
	count, migrate := 0, "migrate"
	if _, ok := d.project.Services[migrate]; !ok {
		migrate = "cluster-migrate"
	}
	for _, service := range d.project.Services {
		if store := service.Networks["store"]; store != nil && slices.Contains(store.Aliases, "db") {
			count++
			if !d.after(migrate, service.Name) {
				d.problem("%s does not wait for %s", migrate, service.Name)
			}
		}
	}
	want := 1
	if _, ok := d.project.Services["nats-1"]; ok {
		want = 3
	}
	if count != want {
		d.problem("%d databases, want %d", count, want)
	}
	for _, service := range d.project.Services {
		at := service.Environment["DATABASE_URL"]
		if at != nil && count > 1 && !strings.Contains(*at, "target_session_attrs=read-write") {
			d.problem("%s: DATABASE_URL does not ask for the database that can be written to", service.Name)
		}
	}
}

// after reports whether a service begins when another is up: it, or what it waits for, waits for it.
func (d *deployment) after(name, other string) bool {
	for on := range d.project.Services[name].DependsOn {
		if on == other || d.after(on, other) {
			return true
		}
	}
	return false
}
