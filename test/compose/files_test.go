package compose

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
)

// servers asks for one NATS server, or for three that know each other.
func (d *deployment) servers() {
	names := 0
	for _, name := range slices.Sorted(maps.Keys(d.project.Services)) {
		if name == "nats" || strings.HasPrefix(name, "nats-") {
			names++
			d.nats(d.project.Services[name])
		}
	}
	copies := "1"
	for _, service := range d.project.Services {
		if value := service.Environment["DULY_STREAM_REPLICAS"]; value != nil {
			copies = *value
		}
	}
	if copies != strconv.Itoa(names) || names == 0 {
		d.problem("%d NATS servers hold %s copies", names, copies)
	}
}

// nats holds the mounted server configuration to what Duly promises with it: what
// is acknowledged has been synced, and lies on a volume that is kept; and what the
// task stream reserves leaves room for the others.
func (d *deployment) nats(service types.ServiceConfig) {
	config, inside := "", ""
	for _, volume := range service.Volumes {
		if volume.Type == types.VolumeTypeBind {
			config, inside = volume.Source, volume.Target
		}
	}
	if config == "" || !slices.Contains(service.Command, inside) {
		d.problem("nats: no mounted configuration is named in its command")
		return
	}
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		d.problem("nats: %v", err)
		return
	}
	if !options.JetStream {
		d.problem("nats: JetStream is off")
	}
	if !options.SyncAlways {
		d.problem("nats: sync_interval is not always")
	}
	kept := slices.ContainsFunc(service.Volumes, func(volume types.ServiceVolumeConfig) bool {
		return volume.Type == types.VolumeTypeVolume && volume.Target == options.StoreDir
	})
	if !kept {
		d.problem("nats: no volume at its store %s", options.StoreDir)
	}
	for _, other := range d.project.Services {
		value := other.Environment["DULY_STREAM_MAX_BYTES"]
		if value == nil {
			if rolesOf(other) != nil {
				d.problem("%s: no DULY_STREAM_MAX_BYTES", other.Name)
			}
			continue
		}
		if reserved, err := strconv.ParseInt(*value, 10, 64); err != nil || reserved > options.JetStreamMaxStore/2 {
			d.problem("%s: the task stream reserves %s of the %d bytes of NATS, want half of them at most", other.Name, *value, options.JetStreamMaxStore)
		}
	}
	if options.HTTPPort != 8222 {
		d.problem("nats: health is asked at 8222, served at %d", options.HTTPPort)
	}
}

// instruction is one line of a Dockerfile, continuations joined.
type instruction struct{ name, rest string }

func readDockerfile(path string) ([]instruction, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var found []instruction
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		found = append(found, instruction{strings.ToUpper(name), strings.TrimSpace(rest)})
	}
	return found, nil
}

// lastOf gives the last instruction of a name; empty if there is none.
func lastOf(file []instruction, name string) string {
	for _, step := range slices.Backward(file) {
		if step.name == name {
			return step.rest
		}
	}
	return ""
}

// numericUser is a user other than root, by number.
var numericUser = regexp.MustCompile(`^[1-9]\d*(:[1-9]\d*)?$`)

func (d *deployment) dockerfile() {
	file, err := readDockerfile(filepath.Join(d.dir, "Dockerfile"))
	if err != nil {
		d.problem("%v", err)
		return
	}
	stage := slices.IndexFunc(file, func(step instruction) bool { return step.name == "FROM" })
	last := 0
	for i, step := range file {
		if step.name == "FROM" {
			last = i
		}
	}
	if stage < 0 || stage == last {
		d.problem("Dockerfile: want a build stage and a final stage")
		return
	}
	d.stages(file)
	final := file[last:]
	base, _, _ := strings.Cut(file[last].rest, " ")
	if base != "scratch" && !strings.HasPrefix(base, "gcr.io/distroless/static") {
		d.problem("Dockerfile: the final stage is %s, want scratch or distroless", base)
	}
	if user := lastOf(final, "USER"); !numericUser.MatchString(user) {
		d.problem("Dockerfile: USER is %q, want a number other than 0", user)
	}
	if entry := lastOf(final, "ENTRYPOINT"); entry != `["/duly"]` {
		d.problem("Dockerfile: ENTRYPOINT is %s", entry)
	}
	d.builds(file)
}

// stages asks for exact versions of what the build stands on.
func (d *deployment) stages(file []instruction) {
	for _, step := range file {
		base, _, _ := strings.Cut(step.rest, " ")
		if step.name == "FROM" && base != "scratch" && !exactTag.MatchString(base) {
			d.problem("Dockerfile: base %s is not at an exact patch version", base)
		}
	}
}

// built finds the output and the package of each go build.
var built = regexp.MustCompile(`go build [^&]*-o /out(/\S+) (\./\S+)`)

// builds asks for static binaries of packages that exist, and for every program
// that a service starts.
func (d *deployment) builds(file []instruction) {
	var whole strings.Builder
	for _, step := range file {
		whole.WriteString(step.name + " " + step.rest + "\n")
	}
	if !strings.Contains(whole.String(), "CGO_ENABLED=0") {
		d.problem("Dockerfile: no CGO_ENABLED=0: the binary would need a C library")
	}
	var programs []string
	for _, match := range built.FindAllStringSubmatch(whole.String(), -1) {
		programs = append(programs, match[1])
		sources, err := filepath.Glob(filepath.Join(d.dir, match[2], "*.go"))
		if err != nil || len(sources) == 0 {
			d.problem("Dockerfile: builds %s, which holds no Go file", match[2])
		}
	}
	for _, service := range d.project.Services {
		if service.Build == nil {
			continue
		}
		program := "/duly"
		if len(service.Entrypoint) > 0 {
			program = service.Entrypoint[0]
		}
		if !slices.Contains(programs, program) {
			d.problem("%s: starts %s, which the Dockerfile does not build", service.Name, program)
		}
	}
}
