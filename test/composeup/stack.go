package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/freeport"
)

// stack is one project of Compose: compose.yaml under a name, a profile and ports
// of its own, so that one that is up already is left alone.
type stack struct {
	compose  string // the program
	root     string
	project  string
	profile  string
	override string
	http     string // base URLs and address on this machine
	drone    string
	nats     string
	ports    []string // as settings of compose.yaml
	scale    []string
	lost     map[string]bool // services that were killed for good
}

// upMax is how long everything may take to be healthy.
const upMax = 150 * time.Second

// newStack chooses free ports.
func newStack(compose, root, dir, project, profile string) (*stack, error) {
	s := &stack{compose: compose, root: root, project: project, profile: profile, override: filepath.Join(dir, project+".json")}
	ports, err := freeport.Find(3)
	if err != nil {
		return nil, err
	}
	s.http, s.drone = fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	s.nats = fmt.Sprintf("nats://127.0.0.1:%d", ports[2])
	for i, name := range []string{"DULY_HTTP_PORT", "DULY_DRONE_PORT", "DULY_NATS_PORT"} {
		s.ports = append(s.ports, name+"="+strconv.Itoa(ports[i]))
	}
	return s, nil
}

// use says which images stand in the place of compose.yaml's.
func (s *stack) use(i images) error {
	type settings map[string]any
	services := settings{}
	if i.duly != "" {
		for _, name := range []string{"single", "migrate", "cluster-migrate", "door", "ingest", "scheduler", "supervisor", "drone", "cluster-door", "cluster-node"} {
			services[name] = settings{"image": i.duly}
		}
	}
	if i.nats != "" {
		for _, name := range []string{"nats", "nats-1", "nats-2", "nats-3"} {
			services[name] = settings{"image": i.nats}
		}
	}
	if i.postgres != "" {
		for _, name := range []string{"postgres", "postgres-1", "postgres-2", "postgres-3"} {
			// The published image asks for this signal itself; one that was imported cannot.
			services[name] = settings{"image": i.postgres, "stop_signal": "SIGINT"}
		}
	}
	text, err := json.Marshal(settings{"services": services})
	if err != nil {
		return err
	}
	return os.WriteFile(s.override, text, 0o644)
}

func (s *stack) run(ctx context.Context, args ...string) (string, error) {
	all := []string{"-p", s.project, "--project-directory", s.root, "-f", filepath.Join(s.root, "compose.yaml"), "-f", s.override, "--profile", s.profile}
	return command{dir: s.root, env: s.ports}.run(ctx, s.compose, append(all, args...)...)
}

// up starts what is not up, and waits until all of it is healthy.
func (s *stack) up(ctx context.Context) error {
	args := []string{"up", "--detach", "--wait", "--wait-timeout", strconv.Itoa(int(upMax.Seconds())), "--no-build", "--quiet-pull"}
	if _, err := s.run(ctx, append(args, s.scale...)...); err != nil {
		return err
	}
	return s.healthy(ctx)
}

// container is what is running, as Compose lists it.
type container struct {
	ID, Service, State, Health string
	ExitCode                   int
	Publishers                 []struct {
		URL           string
		PublishedPort int
	}
}

func (s *stack) containers(ctx context.Context, services ...string) ([]container, error) {
	out, err := s.run(ctx, append([]string{"ps", "--all", "--no-trunc", "--format", "json"}, services...)...)
	if err != nil {
		return nil, err
	}
	var all []container
	for line := range strings.Lines(out) {
		var c container
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("docker compose ps: %w", err)
		}
		all = append(all, c)
	}
	return all, nil
}

// healthy holds when every service of the profile runs and is healthy, or was to
// end and ended well.
func (s *stack) healthy(ctx context.Context) error {
	wanted, err := s.run(ctx, "config", "--services")
	if err != nil {
		return err
	}
	all, err := s.containers(ctx)
	if err != nil {
		return err
	}
	for service := range strings.FieldsSeq(wanted) {
		if !slices.ContainsFunc(all, func(c container) bool { return c.Service == service }) {
			return fmt.Errorf("service %s has no container", service)
		}
	}
	for _, c := range all {
		ended := slices.Contains([]string{"migrate", "cluster-migrate", "crdb-init"}, c.Service) && c.State == "exited" && c.ExitCode == 0 || s.lost[c.Service]
		if !ended && (c.State != "running" || c.Health != "healthy") {
			return fmt.Errorf("service %s is %s %s (exit code %d)", c.Service, c.State, c.Health, c.ExitCode)
		}
	}
	return nil
}

// loopback holds when no port is published to other machines.
func (s *stack) loopback(ctx context.Context) error {
	all, err := s.containers(ctx)
	if err != nil {
		return err
	}
	published := 0
	for _, c := range all {
		for _, p := range c.Publishers {
			if p.PublishedPort == 0 {
				continue
			}
			published++
			if p.URL != "127.0.0.1" {
				return fmt.Errorf("service %s publishes port %d on %s", c.Service, p.PublishedPort, p.URL)
			}
		}
	}
	if published != len(s.ports) {
		return fmt.Errorf("%d ports are published, want %d", published, len(s.ports))
	}
	return nil
}

// down ends everything; wipe forgets the volumes too.
func (s *stack) down(ctx context.Context, wipe bool) error {
	args := []string{"down", "--remove-orphans", "--timeout", "30"}
	if wipe {
		args = append(args, "--volumes")
	}
	_, err := s.run(ctx, args...)
	if err != nil {
		return errors.Join(err, s.release(ctx))
	}
	return nil
}

// release takes what is left off the networks: an engine may keep the endpoint of a container that is gone, which was taken
// off a network and put back, and then does not remove the network.
func (s *stack) release(ctx context.Context) error {
	networks, err := command{}.run(ctx, "docker", "network", "ls", "--quiet", "--filter", "label=com.docker.compose.project="+s.project)
	if err != nil {
		return err
	}
	for _, network := range strings.Fields(networks) {
		names, err := command{}.run(ctx, "docker", "network", "inspect", "--format", "{{range .Containers}}{{.Name}} {{end}}", network)
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(names) {
			if err := docker(ctx, "network", "disconnect", "--force", network, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// ids are the containers of services, in the order of their numbers.
func (s *stack) ids(ctx context.Context, services ...string) ([]string, error) {
	all, err := s.containers(ctx, services...)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("services %q have no container", services)
	}
	return ids, nil
}

// database is the service that has the database.
func (s *stack) database() string {
	if s.profile == "postgres" {
		return "postgres"
	}
	return "crdb"
}

// network is the engine's name of one of compose.yaml's.
func (s *stack) network(name string) string { return s.project + "_" + name }

// logLine is one line of a node.
type logLine struct {
	Level string `json:"level"`
	Msg   string `json:"msg"`
	Error string `json:"error"`
	Node  string `json:"node"`
}

// lines are what services have said.
func (s *stack) lines(ctx context.Context, services ...string) ([]logLine, error) {
	out, err := s.run(ctx, append([]string{"logs", "--no-color", "--no-log-prefix"}, services...)...)
	if err != nil {
		return nil, err
	}
	var all []logLine
	for line := range strings.Lines(out) {
		var l logLine
		if json.Unmarshal([]byte(line), &l) == nil {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("services %q have said nothing", services)
	}
	return all, nil
}

// calm holds when nothing of what services said is a warning.
func (s *stack) calm(ctx context.Context, services ...string) error {
	lines, err := s.lines(ctx, services...)
	if err != nil {
		return err
	}
	loud := map[string]int{}
	for _, l := range lines {
		if l.Level != "INFO" && l.Level != "DEBUG" {
			loud[l.Level+" "+l.Msg+": "+l.Error]++
		}
	}
	var problems []error
	for text, n := range loud {
		problems = append(problems, fmt.Errorf("%d × %s", n, text))
	}
	return errors.Join(problems...)
}

// named holds when the nodes of a service have n different names.
func (s *stack) named(ctx context.Context, n int, services ...string) error {
	lines, err := s.lines(ctx, services...)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, l := range lines {
		if l.Node != "" {
			names[l.Node] = true
		}
	}
	if len(names) < n {
		return fmt.Errorf("services %q have %d names, want %d", services, len(names), n)
	}
	return nil
}
