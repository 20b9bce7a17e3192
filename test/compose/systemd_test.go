package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"duly.dev/duly/internal/config"
)

const (
	unitFile  = "deploy/systemd/duly.service"
	unitEnv   = "deploy/systemd/duly.env"
	unitStart = "/usr/local/bin/duly serve"
	// exposureMax is the most that `systemd-analyze security` may say, in tenths.
	exposureMax = "15"
)

// TestSystemd: the unit names settings that there are, waits longer for a stop than a node does, and what reads
// credentials reads those that are loaded.
//
// covers: D8, P4, P23
func TestSystemd(t *testing.T) {
	code := fromCode()
	for _, problem := range checkUnit(root, code) {
		t.Error(problem)
	}
	for _, fault := range []struct{ name, file, from, to, want string }{
		{"unknown setting", unitEnv, "DULY_LOG_FORMAT", "DULY_LOGFORMAT", "no setting DULY_LOGFORMAT"},
		{"unknown setting in the unit", unitFile, "NATS_CREDS=", "NATS_CRED=", "no setting NATS_CRED"},
		{"killed in its drain", unitFile, "TimeoutStopSec=30", "TimeoutStopSec=5", "TimeoutStopSec is 5s"},
		{"credential not loaded", unitFile, "LoadCredential=pgpass:", "LoadCredential=passwords:", "pgpass, which is not loaded"},
		{"alerts read all credentials", unitFile, "DULY_ALERTS_SECRETS_DIR=%S/duly/alerts", "DULY_ALERTS_SECRETS_DIR=%d", "the folder of all credentials"},
		{"no word of being ready", unitFile, "Type=notify", "Type=simple", "Type is"},
		{"all the memory", unitFile, "MemoryMax=75%\n", "", "MemoryMax is"},
		{"root", unitFile, "DynamicUser=yes\n", "", "DynamicUser is"},
		{"another program", unitFile, "duly serve", "duly server", "ExecStart is"},
		{"hasty watchdog", unitFile, "WatchdogSec=30", "WatchdogSec=2", "WatchdogSec is 2s"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{unitFile, unitEnv} {
				text, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				if name == fault.file && !strings.Contains(string(text), fault.from) {
					t.Fatalf("%s has no %q to plant a fault in", name, fault.from)
				}
				if name == fault.file {
					text = []byte(strings.ReplaceAll(string(text), fault.from, fault.to))
				}
				write(t, filepath.Join(dir, name), string(text))
			}
			problems := checkUnit(dir, code)
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, fault.want) }) {
				t.Errorf("problems are %q, want one with %q", problems, fault.want)
			}
		})
	}
}

// checkUnit gives every problem with the unit in dir.
func checkUnit(dir string, code contract) (problems []string) {
	f, err := os.Open(filepath.Join(dir, unitFile))
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	options, err := unit.DeserializeOptions(f)
	if err != nil {
		return []string{err.Error()}
	}
	env, err := os.ReadFile(filepath.Join(dir, unitEnv))
	if err != nil {
		return []string{err.Error()}
	}
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	settings, loaded, all := []string{}, map[string]bool{}, map[string]string{}
	for _, o := range options {
		all[o.Name] = o.Value
		switch o.Name {
		case "Environment":
			settings = append(settings, strings.Fields(o.Value)...)
		case "LoadCredential":
			name, _, _ := strings.Cut(o.Value, ":")
			loaded[name] = true
		}
	}
	for line := range strings.Lines(string(env)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			settings = append(settings, line)
		}
	}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		if !slices.Contains(code.envs, name) && name != "PGPASSFILE" { // the driver's own
			problem("there is no setting %s", name)
		}
		if name == "DULY_ALERTS_SECRETS_DIR" && strings.HasPrefix(value, "%d") {
			problem("%s is the folder of all credentials", name)
		}
		if credential, ok := strings.CutPrefix(value, "%d/"); ok && !loaded[credential] {
			problem("%s is the credential %s, which is not loaded", name, credential)
		}
	}
	for name, want := range map[string]string{"Type": "notify", "MemoryMax": "75%", "ExecStart": unitStart, "DynamicUser": "yes", "Restart": "on-failure"} {
		if all[name] != want {
			problem("%s is %q, want %q", name, all[name], want)
		}
	}
	for name, least := range map[string]time.Duration{"TimeoutStopSec": drainByDefault() + 5*time.Second, "WatchdogSec": 10 * time.Second} {
		if given, err := time.ParseDuration(all[name] + "s"); err != nil || given < least {
			problem("%s is %v, want %v or more", name, given, least)
		}
	}
	return problems
}

// drainByDefault is how long a node waits when it is told to stop.
func drainByDefault() time.Duration {
	for _, s := range config.Settings() {
		if d, err := time.ParseDuration(s.Default); s.Env == "DULY_DRAIN" && err == nil {
			return d
		}
	}
	panic("config has no drain")
}

// TestSystemdAnalyze asks systemd itself, where the machine has it, about the unit: that it can be read, and how much it
// leaves open.
func TestSystemdAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("NOT RUN: this machine has no systemd-analyze; TestSystemd has read the unit")
		return
	}
	text, err := os.ReadFile(filepath.Join(root, unitFile))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable() // one that is there
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	write(t, at, strings.Replace(string(text), strings.Fields(unitStart)[0], program, 1))
	if said := run(t, root, analyze, "verify", "--man=no", at); strings.Contains(said, filepath.Base(unitFile)) {
		t.Errorf("systemd-analyze verify says %s", said)
	}
	run(t, root, analyze, "security", "--offline=true", "--threshold="+exposureMax, at)
	write(t, at, "[Service]\nExecStart="+program+"\nNoSuch=thing\n")
	if said := run(t, root, analyze, "verify", "--man=no", at); !strings.Contains(said, "NoSuch") {
		t.Errorf("of a unit with a planted fault systemd-analyze says %q", said)
	}
}
