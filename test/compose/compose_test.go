package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// root is the repository, seen from this folder.
const root = "../.."

// covers: D8, inv1
func TestDeployment(t *testing.T) {
	code := fromCode()
	if len(code.envs) == 0 || len(code.droneEnvs) == 0 || len(code.flags) == 0 || len(code.roles) == 0 || len(code.healthPaths) == 0 {
		t.Fatalf("the code's contract is incomplete: %+v", code)
	}
	for _, problem := range check(t.Context(), root, code) {
		t.Error(problem)
	}
}

// TestPlanted changes one thing in a copy and expects the check to say so.
//
// covers: D8, inv1
func TestPlanted(t *testing.T) {
	const (
		yaml   = "compose.yaml"
		docker = "Dockerfile"
		conf   = "deploy/nats.conf"
		env    = ".env"
	)
	for _, fault := range []struct{ name, file, from, to, want string }{
		{"floating tag", yaml, "nats:2.15.2-alpine", "nats:2.15-alpine", "not at an exact patch version"},
		{"latest", yaml, "cockroach:v26.2.7", "cockroach:latest", "not at an exact patch version"},
		{"floating database", yaml, "postgres:17.6-alpine", "postgres:17-alpine", "not at an exact patch version"},
		{"no tag", yaml, "image: duly:0.1.0", "image: duly", "not at an exact patch version"},
		{"unknown environment name", yaml, "DULY_LOG_LEVEL: info", "DULY_LOGLEVEL: info", "knows no environment name DULY_LOGLEVEL"},
		{"unknown role", yaml, "DULY_ROLES: supervisor", "DULY_ROLES: supervisor,manager", `knows no role "manager"`},
		{"unknown role in a flag", yaml, `command: ["serve"]`, `command: ["serve", "--roles", "boss"]`, `knows no role "boss"`},
		{"missing role", yaml, "DULY_ROLES: supervisor", "DULY_ROLES: ingest", "no service runs the role supervisor"},
		{"unknown flag", yaml, `command: ["migrate"]`, `command: ["migrate", "--hurry=yes"]`, "knows no flag --hurry"},
		{"other published port", yaml, "{DULY_HTTP_PORT:-7310}", "{DULY_HTTP_PORT:-7311}", "published ports are"},
		{"other container port", yaml, "7310}:7310", "7310}:8080", "published ports are"},
		{"published to the world", yaml, "127.0.0.1:${DULY_NATS_PORT", "${DULY_NATS_PORT", "published ports are"},
		{"page not published", yaml, "127.0.0.1:${DULY_DRONE_PORT", "127.0.0.2:${DULY_DRONE_PORT", "published ports are"},
		{"published where it is scaled", yaml, "      DULY_ROLES: scheduler\n", "      DULY_ROLES: scheduler\n    ports: [\"127.0.0.1:7312:7310\"]\n", "published ports are"},
		{"a name for all", yaml, "      DULY_ROLES: scheduler\n", "      DULY_ROLES: scheduler\n      DULY_NODE_NAME: s\n", "has a node name"},
		{"unknown name of the page", yaml, "      DULY_URL:", "      DULY_LOG_LEVEL: info\n      DULY_URL:", "drone: the code knows no environment name DULY_LOG_LEVEL"},
		{"the page asks another", yaml, `, "--server", "http://127.0.0.1:7310"]`, "]", "drone: health check is"},
		{"no common network", yaml, "    networks: [store]\n", "    networks: [bus]\n", `names "db"`},
		{"another usual profile", env, "=cockroach", "=postgres", ".env: no line"},
		{"more than there is", yaml, `"4294967296"`, `"10737418240"`, "the task stream reserves 10737418240"},
		{"as much as there is by default", yaml, "  DULY_STREAM_MAX_BYTES: \"4294967296\"\n", "", "no DULY_STREAM_MAX_BYTES"},
		{"one copy on three servers", yaml, "      DULY_STREAM_REPLICAS: \"3\"\n", "", "3 NATS servers hold 1 copies"},
		{"two databases", yaml, "    <<: *crdb-peer\n    command: [\"start\", \"--insecure\", \"--join=crdb-1,crdb-2,crdb-3\", \"--advertise-addr=crdb-3", "    <<: *crdb-peer\n    networks: [store]\n    command: [\"start\", \"--insecure\", \"--join=crdb-1,crdb-2,crdb-3\", \"--advertise-addr=crdb-3", "2 databases, want 3"},
		{"any database", yaml, "&target_session_attrs=read-write", "", "does not ask for the database that can be written to"},
		{"migration through a standby", yaml, "      postgres-2: *optional-server\n", "", "cluster-migrate does not wait for postgres-2"},
		{"nothing is kept", yaml, "      - single-data:/data\n", "      - single-data:/else\n", "no volume at its data directory"},
		{"other listening port", yaml, `DULY_HTTP_ADDR: ":7310"`, `DULY_HTTP_ADDR: ":7311"`, `DULY_HTTP_ADDR is ":7311"`},
		{"no health check", yaml, `test: ["CMD", "curl", "-fsS", "http://localhost:8080/health?ready=1"]`, "disable: true", "crdb: stays up without a health check"},
		{"foreign health check", yaml, `["CMD", "/duly", "health"]`, `["CMD", "curl", "http://localhost:7310/health"]`, "want /duly health"},
		{"unserved health path", yaml, `["CMD", "/duly", "health"]`, `["CMD", "curl", "http://localhost:7310/health"]`, "health path /health is not served"},
		{"waits for a start", yaml, "condition: service_healthy", "condition: service_started", "with service_started"},
		{"anonymous volume", yaml, "- nats-data:/data", "- /data", "anonymous volume"},
		{"undeclared volume", yaml, "  crdb-data:\n", "", "undefined volume crdb-data"},
		{"missing file", yaml, "./deploy/nats.conf:", "./deploy/other.conf:", "mounted file other.conf is not there"},
		{"writable file", yaml, "nats.conf:ro", "nats.conf", "can be written"},
		{"unknown host", yaml, "NATS_URL: nats://nats:4222", "NATS_URL: nats://broker:4222", `names "broker"`},
		{"other database port", yaml, "db:26257", "db:5432", "has port 5432"},
		{"unknown program", yaml, `["/drone"]`, `["/plane"]`, "starts /plane"},
		{"configuration not used", yaml, `["-c", "/etc/nats/nats.conf"]`, `["-js"]`, "no mounted configuration"},
		{"misspelt key", yaml, "healthcheck:", "health_check:", "health_check"},

		{"syncs sometimes", conf, "sync_interval: always", "sync_interval: 2m", "sync_interval is not always"},
		{"sync by default", conf, "sync_interval: always", "", "sync_interval is not always"},
		{"no JetStream", conf, "jetstream {", "jetstream: off\nignored {", "nats: "},
		{"store off the volume", conf, "store_dir: /data", "store_dir: /tmp", "no volume at its store /tmp"},
		{"other monitoring port", conf, "http_port: 8222", "http_port: 8223", "served at 8223"},

		{"root", docker, "USER 65532:65532", "USER 0", "want a number other than 0"},
		{"named user", docker, "USER 65532:65532", "USER root", "want a number other than 0"},
		{"no user", docker, "USER 65532:65532", "", "want a number other than 0"},
		{"fat image", docker, "FROM scratch", "FROM debian:12.1.0", "want scratch or distroless"},
		{"floating builder", docker, "golang:1.26.8-bookworm", "golang:1.26", "not at an exact patch version"},
		{"dynamic binary", docker, "ENV CGO_ENABLED=0", "", "CGO_ENABLED=0"},
		{"missing package", docker, "./cmd/duly", "./cmd/dully", "builds ./cmd/dully"},
		{"other entry point", docker, `["/duly"]`, `["/bin/duly"]`, "ENTRYPOINT"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			dir := copyOf(t)
			path := filepath.Join(dir, fault.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.ReplaceAll(string(text), fault.from, fault.to)
			if changed == string(text) {
				t.Fatalf("%s has no %q to plant a fault in", fault.file, fault.from)
			}
			write(t, path, changed)
			problems := check(t.Context(), dir, fromCode())
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, fault.want) }) {
				t.Errorf("problems are %q, want one with %q", problems, fault.want)
			}
		})
	}
}

// TestPlantedBase shows that a copy without a fault has no problem: what
// TestPlanted finds comes from the fault.
func TestPlantedBase(t *testing.T) {
	if problems := check(t.Context(), copyOf(t), fromCode()); len(problems) > 0 {
		t.Errorf("an unchanged copy has problems: %q", problems)
	}
}

// TestCommands asks the binary itself for the commands that services start it
// with.
func TestCommands(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "duly")
	run(t, root, "go", "build", "-o", binary, "./cmd/duly")
	for _, command := range []string{"serve", "migrate", "health", "dev"} {
		if help := run(t, root, binary, command, "--help"); !strings.Contains(help, command) {
			t.Errorf("duly %s --help says nothing of %s:\n%s", command, command, help)
		}
	}
	help := run(t, root, binary, "dev", "--help")
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "compose.yaml")}, cli.WithProfiles([]string{"single"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range project.Services["single"].Command {
		if strings.HasPrefix(word, "--") && !strings.Contains(help, word+"=") {
			t.Errorf("duly dev --help says nothing of %s:\n%s", word, help)
		}
	}
}

// copyOf gives a folder with the deployment's files, and a Go file where the
// Dockerfile's packages are.
func copyOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"compose.yaml", ".env", "Dockerfile", "deploy/nats.conf", "deploy/postgres/primary.sh", "deploy/postgres/standby.sh"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	for _, name := range []string{"cmd/duly", "examples/drone/cmd/drone"} {
		write(t, filepath.Join(dir, name, "main.go"), "package main\n")
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(name), args, err, output)
	}
	return string(output)
}

// TestStandby: a standby that is killed while it copies the primary copies it again; it never starts from a part, nor as a
// primary of its own.
func TestStandby(t *testing.T) {
	dir := t.TempDir()
	data, bin := filepath.Join(dir, "data"), filepath.Join(dir, "bin")
	for name, text := range map[string]string{
		"hostname": "echo postgres-2\n",
		"postgres": `cd "$PGDATA" && echo started from * of $(ls base)` + "\n",
		// As a container that is killed, the script goes at once: in the copy, or just after it.
		"pg_basebackup": `while [ "$1" != --pgdata ]; do shift; done
mkdir -p "$2/base" && echo 17 >"$2/PG_VERSION" && [ "$KILLED" != in ] || kill -9 $PPID
touch "$2/base/1" "$2/postgresql.conf" && [ "$KILLED" != after ] || kill -9 $PPID
`,
	} {
		write(t, filepath.Join(bin, name), "#!/bin/sh\n"+text)
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join(root, "deploy/postgres/standby.sh"))
	if err != nil {
		t.Fatal(err)
	}
	start := func(killed string) string {
		command := exec.CommandContext(t.Context(), "/bin/sh", script)
		command.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "PGDATA=" + data, "PGPORT=5432", "POSTGRES_USER=root", "PRIMARY=p", "SERVERS=p,q", "KILLED=" + killed}
		output, _ := command.CombinedOutput() // what it says shows whether it started
		return string(output)
	}
	for _, killed := range []string{"in", "after", "never", "never"} {
		said, want := start(killed), ""
		if killed == "never" {
			want = "started from PG_VERSION base postgresql.conf standby.signal of 1\n"
		}
		if said != want {
			t.Errorf("killed %s: %q, want %q", killed, said, want)
		}
	}
}
