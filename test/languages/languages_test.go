package languages

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/conformance"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pgtestdb"
)

// TestMain stops the database at the end.
func TestMain(m *testing.M) { os.Exit(pgtestdb.Stopping{M: m}.Run()) }

const (
	patience = time.Minute
	agent    = "payment.charge"
	examples = "../../examples/languages"
)

// natsServer is a server for this test alone.
func natsServer(t *testing.T) string {
	t.Helper()
	return natstest.Start(t, natsserver.Options{}).ClientURL()
}

// start starts an instance of an agent, waits until it is ready, and stops it at the end of the test, when it must end by
// itself and well.
func start(t *testing.T, dir, url string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NATS_URL="+url)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for seen := false; lines.Scan(); {
			if !seen && strings.HasSuffix(lines.Text(), "is ready") {
				seen = true
				close(ready)
			}
		}
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err := <-ended:
			if err != nil || said.Len() > 0 {
				t.Errorf("%s ended with %v and said %s", command, err, said.String())
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end", command)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended before it was ready: %v: %s", command, err, said.String())
	case <-time.After(patience):
		t.Fatalf("%s is not ready", command)
	}
}

// effects counts the effects of keys that stand in a folder; an empty key: of all.
func effects(folder, key string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return n, err
		}
		var is struct {
			Key    string `json:"key"`
			Undone bool   `json:"undone"`
		}
		if err := json.Unmarshal(data, &is); err != nil {
			return n, err
		}
		if !is.Undone && (key == "" || is.Key == key) {
			n++
		}
	}
	return n, nil
}

// example is an agent of this folder, as it is played against.
type example struct {
	dir     string
	command []string // without the agent's name, its last argument
	effects func(context.Context, string) (int, error)
	probes  bool
	slow    bool     // it begins processes for each command
	broken  []string // rules that it cannot hold, as its README says
}

// holds plays conformance against two instances of an agent, with a view of where its effects are.
func (e *example) holds(t *testing.T) {
	t.Helper()
	url := natsServer(t)
	for range 2 {
		start(t, e.dir, url, append(e.command, agent)...)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	o := conformance.Options{
		Agent: agent, Step: "charge", Input: []byte(`{"cents":1999,"card":"4711"}`), SlowInput: []byte(`{"cents":1999,"card":"slow"}`),
		Probes: e.probes, Calls: 500, Silence: 300 * time.Millisecond, Slack: time.Second, Effects: e.effects,
	}
	if e.slow {
		o.Calls, o.CallTime, o.Together, o.Slack = 20, 10*time.Second, 8, 2*time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	report, err := conformance.Run(ctx, nc, o)
	if err != nil {
		t.Fatal(err)
	}
	e.judge(t, report)
	// One that begins a do whose time is over may do so after the undo.
	if n, err := e.effects(ctx, ""); n != 0 && len(e.broken) == 0 || err != nil {
		t.Errorf("%d effects stand after all was undone, %v", n, err)
	}
}

// judge wants every rule held but for those that the agent cannot hold, which must be broken.
func (e *example) judge(t *testing.T, report *conformance.Report) {
	t.Helper()
	judged := map[string]bool{}
	for _, f := range report.Findings {
		judged[f.Rule] = true
		known := slices.Contains(e.broken, f.Rule)
		switch {
		case f.State == conformance.Held, known, f.State == conformance.Aside && f.Rule == "P15" && !e.probes:
		default:
			t.Errorf("%s, %s: %s: %s\n%+v", f.Rule, f.Check, f.State, f.Why, f.Evidence)
		}
	}
	var broken []string
	for _, rule := range report.Breaks() {
		broken = append(broken, rule.ID)
	}
	if !slices.Equal(broken, e.broken) || len(judged) != len(conformance.Rules) || report.Left > 0 {
		t.Errorf("%v are broken, want %v; %d of %d rules were judged, %d effects were left: %s", broken, e.broken, len(judged), len(conformance.Rules), report.Left, report.LeftKeys)
	}
}

// inFolder is an agent whose effects are files.
func inFolder(t *testing.T, dir string, command ...string) *example {
	folder := filepath.Join(t.TempDir(), "charges")
	return &example{dir: dir, command: append(command, folder), probes: true,
		effects: func(_ context.Context, key string) (int, error) { return effects(folder, key) }}
}

// inPostgres counts the effects in the table charges of a PostgreSQL.
func inPostgres(t *testing.T, url string) func(context.Context, string) (int, error) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return func(ctx context.Context, key string) (n int, err error) {
		err = pool.QueryRow(ctx, `SELECT count(*) FROM charges WHERE $1 IN ('', key)`, key).Scan(&n)
		return n, err
	}
}

// runtime is a program that an example needs. Where it cannot be had the example is not run, which the log says.
func runtime(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: there is no %s on this machine", name)
		}
	}
}

// installed tries the script that installs what an example needs, where that can be done.
func installed(t *testing.T, part string) {
	t.Helper()
	if out, err := exec.Command("./install", part).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: what it needs cannot be had: install %s: %v: %s", part, err, out)
	}
}

// run runs a command that must succeed.
func run(t *testing.T, dir string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// javaScript is the folder of the agent in JavaScript with its packages.
func javaScript(t *testing.T) (dir string) {
	t.Helper()
	runtime(t, "node", "npm")
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(examples, "javascript"))); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: the packages cannot be had: npm ci: %v: %s", err, out)
	}
	return dir
}

// The agent in JavaScript holds the rules of the protocol.
func TestJavaScript(t *testing.T) { inFolder(t, javaScript(t), "node", "agent.mjs").holds(t) }

// The agent in Python holds the rules of the protocol.
func TestPython(t *testing.T) {
	runtime(t, "python3")
	inFolder(t, filepath.Join(examples, "python"), "python3", "-B", "agent.py").holds(t)
}

// TestFailures: what the system refuses may pass, 500; what the program does not understand fails for good, 512, and the
// agent goes on.
func TestFailures(t *testing.T) {
	t.Run("JavaScript", func(t *testing.T) { failures(t, javaScript(t), "node", "agent.mjs") })
	t.Run("Python", func(t *testing.T) {
		runtime(t, "python3")
		failures(t, filepath.Join(examples, "python"), "python3", "-B", "agent.py")
	})
}

// failures sends dos to an agent with a ledger that cannot be read, and then with none.
func failures(t *testing.T, dir string, command ...string) {
	folder := filepath.Join(t.TempDir(), "charges")
	url, said := natsServer(t), filepath.Join(t.TempDir(), "stderr")
	start(t, dir, url, append([]string{"sh", "-c", `exec "$@" 2>"$0"`, said}, append(command, folder, agent)...)...)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	code := func(key string) string {
		t.Helper()
		left := patience
		data := fmt.Sprintf(`{"v":1,"task":"t","type":"order","step":"charge","attempt":1,"key":%q,"complete_by":%q,"left_ms":%d,"input":{"cents":1999}}`,
			key, time.Now().Add(left).UTC().Format(time.RFC3339), left.Milliseconds())
		reply, err := nc.Request("duly.do."+agent, []byte(data), left)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Header.Get("Nats-Service-Error-Code")
	}
	garbage := fmt.Sprintf("%x.json", sha256.Sum256([]byte("t/charge/0")))
	if err := os.WriteFile(filepath.Join(folder, garbage), []byte(`{"key":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := code("t/charge/0"); got != "512" {
		t.Errorf("a ledger that is no JSON is answered with code %q, want 512", got)
	}
	if got := code("t/charge/1"); got != "" {
		t.Errorf("the next do is answered with code %s", got)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if got := code("t/charge/2"); got != "500" {
		t.Errorf("a ledger that is gone is answered with code %q, want 500", got)
	}
	if stack, err := os.ReadFile(said); err != nil || !bytes.Contains(stack, []byte("ledger.")) {
		t.Errorf("the agent's log has no stack: %v: %s", err, stack)
	}
}

// The agent in Java holds the rules of the protocol.
func TestJava(t *testing.T) {
	installed(t, "java")
	dir, out := filepath.Join(examples, "java"), t.TempDir()
	const jars = "/usr/share/java/gson.jar:/usr/share/java/postgresql.jar"
	files, err := filepath.Glob(filepath.Join(dir, "*.java"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, ".", append([]string{"javac", "-Xlint:all", "-Werror", "-cp", jars, "-d", out}, files...)...)
	url := pgtestdb.URL(t)
	e := &example{dir: dir, command: []string{"java", "-cp", out + ":" + jars, "Agent", jdbc(t, url)}, probes: true, effects: inPostgres(t, url)}
	e.holds(t)
}

// jdbc is a database's URL as Java's driver reads it.
func jdbc(t *testing.T, of string) string {
	t.Helper()
	config, err := pgx.ParseConfig(of)
	if err != nil {
		t.Fatal(err)
	}
	values := url.Values{"user": {config.User}, "password": {config.Password}, "sslmode": {"disable"}}
	return fmt.Sprintf("jdbc:postgresql://%s:%d/%s?%s", config.Host, config.Port, config.Database, values.Encode())
}

// The agent in Go without Duly's library holds the rules of the protocol.
func TestGoMicro(t *testing.T) {
	dir, program := filepath.Join(examples, "go-micro"), filepath.Join(t.TempDir(), "go-micro")
	run(t, dir, "go", "build", "-o", program, ".")
	url := pgtestdb.URL(t)
	e := &example{dir: dir, command: []string{program, url}, probes: true, effects: inPostgres(t, url)}
	e.holds(t)
}

// inShell is an agent in shell, with the nats command built.
func inShell(t *testing.T, script string) *example {
	t.Helper()
	installed(t, "shell")
	tools, database := t.TempDir(), filepath.Join(t.TempDir(), "charges.db")
	run(t, "natscli", "go", "build", "-o", filepath.Join(tools, "nats"), "github.com/nats-io/natscli/nats")
	t.Setenv("PATH", tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	return &example{dir: filepath.Join(examples, "shell"), command: []string{"./" + script, database}, slow: true,
		effects: func(ctx context.Context, key string) (n int, err error) {
			query := "SELECT count(*) FROM charges WHERE '" + strings.ReplaceAll(key, "'", "''") + "' IN ('', key)"
			out, err := exec.CommandContext(ctx, "sqlite3", "-readonly", "-cmd", ".timeout 10000", database, query).Output()
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(strings.TrimSpace(string(out)))
		}}
}

// The agent in shell holds the rules of the protocol.
func TestShell(t *testing.T) {
	inShell(t, "agent.sh").holds(t)
}

// The agent by `nats reply` breaks the rules that its README names, and holds the others.
func TestShellReply(t *testing.T) {
	e := inShell(t, "reply.sh")
	e.broken = []string{"P4", "P9", "P10", "P11"}
	e.holds(t)
}
