package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
)

func good() Config {
	return Config{
		Roles: Roles, NodeName: "n1", Namespace: "duly", Partitions: 16, TaskStreams: 1, Shards: 2, InFlight: 10, AgentWindow: 10, StreamReplicas: 1,
		ScanInterval: time.Second, Lease: 6 * time.Second, Drain: time.Second,
	}
}

// TestValidateNamesTheSetting: what cannot work is refused by its name, its
// value and, where there is one, its limit.
//
// covers: I16
func TestValidateNamesTheSetting(t *testing.T) {
	c := good()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		spoil func(*Config)
		want  string
	}{
		{func(c *Config) { c.Roles = nil }, "roles: none given, want some of ingest"},
		{func(c *Config) { c.Roles = []string{"ingest", "cook"} }, `roles: "cook" is not a role`},
		{func(c *Config) { c.Roles = []string{RoleAgents} }, "agents: not given, but roles has agents"},
		{func(c *Config) { c.Agents = "agents.yaml" }, "agents: given, but roles has no agents"},
		{func(c *Config) { c.AgentsVariant = "canary" }, "agents-variant: given, but roles has no agents"},
		{func(c *Config) { c.Roles, c.Agents, c.AgentsVariant = []string{RoleAgents}, "agents.yaml", "a.b" }, `agents-variant "a.b"`},
		{func(c *Config) { c.NodeName = "a.b" }, `node-name "a.b"`},
		{func(c *Config) { c.NodeName = strings.Repeat("n", core.NameBytesMax+1) }, "node-name"},
		{func(c *Config) { c.Namespace = "Prod" }, `namespace: "Prod" begins with 'P', want a letter of a-z`},
		{func(c *Config) { c.Namespace = strings.Repeat("n", 33) }, "has 33 bytes, want 1 to 32"},
		{func(c *Config) { c.Namespace = "status" }, `namespace: requests to another installation could lead it to subjects of "status"`},
		{func(c *Config) { c.ReplyTo = []string{"pro"} }, `reply-to-prefixes: "pro" is also the begin of longer namespaces`},
		{func(c *Config) { c.ReplyTo = []string{"duly.live."} }, `reply-to-prefixes: "duly.live." begins with the namespace "duly"`},
		{func(c *Config) { c.Partitions = 0 }, "partitions: 0, want 1 to 4096"},
		{func(c *Config) { c.Partitions = 4097 }, "partitions: 4097, want 1 to 4096"},
		{func(c *Config) { c.Partitions, c.TaskStreams = 4, 5 }, "task-streams: 5, want at most partitions (4)"},
		{func(c *Config) { c.Shards = 0 }, "shards: 0, want 1 to 64"},
		{func(c *Config) { c.InFlight = 0 }, "in-flight: 0"},
		{func(c *Config) { c.AgentWindow = -1 }, "agent-window: -1"},
		{func(c *Config) { c.StreamReplicas = 6 }, "stream-replicas: 6, want 1 to 5"},
		{func(c *Config) { c.StreamReplicas = 2 }, "stream-replicas: 2, want 1, 3 or 5"},
		{func(c *Config) { c.Lease = time.Millisecond }, "lease: 1ms, want 1s or more"},
		{func(c *Config) { c.ScanInterval = 4 * time.Second }, "scan-interval: 4s, want 10ms to half the lease (3s)"},
		{func(c *Config) { c.ScanInterval = 0 }, "scan-interval: 0s"},
		{func(c *Config) { c.Drain = 0 }, "drain: 0s"},
		{func(c *Config) { c.RetainRow, c.RetainDetail, c.StreamMaxAge = 2*time.Hour, time.Hour, 3*time.Hour },
			"retain-row: 2h0m0s, want 0, or at least retain-detail and stream-max-age (3h0m0s)"},
		{func(c *Config) { c.RetainRow, c.RetainDetail, c.StreamMaxAge = 2*time.Hour, 4*time.Hour, time.Hour },
			"retain-row: 2h0m0s, want 0, or at least retain-detail and stream-max-age (4h0m0s)"},
		{func(c *Config) { c.RetainRow, c.StreamMaxAge = 2*time.Hour, time.Hour }, "retain-row: 2h0m0s, but retain-detail is 0"},
		{func(c *Config) { c.Memory = 1 << 20 }, "memory: 1048576, want 0 (half of what there is) or at least 67108864"},
		{func(c *Config) { c.Memory = -1 }, "memory: -1"},
		{func(c *Config) { c.ReplyTo = []string{"_INBOX.", "orders.*"} }, `reply-to-prefixes: no status subject can begin with "orders.*"`},
		{func(c *Config) { c.ReplyTo = []string{"$JS."} }, `reply-to-prefixes: no status subject can begin with "$JS."`},
	} {
		c := good()
		bad.spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v, want %q", err, bad.want)
		}
	}
}

// TestNodeNameIsMadeOfTheHost: whatever the host is called.
func TestNodeNameIsMadeOfTheHost(t *testing.T) {
	c := good()
	c.NodeName = ""
	if err := c.Validate(); err != nil {
		t.Errorf("a node whose name is to be made: %v", err)
	}
	got, err := c.Resolve()
	if err == nil {
		err = got.Validate()
	}
	if err != nil || got.NodeName == "" || got.Namespace != "duly" || c.NodeName != "" {
		t.Errorf("name %q, namespace %q: %v", got.NodeName, got.Namespace, err)
	}
	for in, want := range map[string]string{"web-1": "web-1", "web.1.example": "web-1-example", "säge": "s--ge", strings.Repeat("h", 100): strings.Repeat("h", core.NameBytesMax-12)} {
		if got := core.NameOf(in, core.NameBytesMax-12); got != want {
			t.Errorf("NameOf(%q) is %q, want %q", in, got, want)
		}
	}
}

// TestSettingsAreComplete: every setting can be given as a flag and in the
// environment, by a name of its own, and says what it is.
//
// covers: S27, I16, D8
func TestSettingsAreComplete(t *testing.T) {
	flags, envs := map[string]bool{}, map[string]bool{}
	for _, s := range Settings() {
		if s.Flag == "" || s.Env == "" || s.Usage == "" {
			t.Errorf("incomplete: %+v", s)
		}
		if flags[s.Flag] || envs[s.Env] {
			t.Errorf("a name twice: %+v", s)
		}
		flags[s.Flag], envs[s.Env] = true, true
	}
	for _, want := range []string{"DATABASE_URL", "NATS_URL", "DULY_ROLES", "DULY_LOG_LEVEL"} {
		if !envs[want] {
			t.Errorf("%s is no setting", want)
		}
	}
}

// TestBreakerDefaults: 0 means what the settings show as the default, and what is given stays.
func TestBreakerDefaults(t *testing.T) {
	is := (&Config{}).Breakers()
	shown := map[string]string{
		"breaker-calls": fmt.Sprint(is.CallsMin), "breaker-window": is.Window.String(), "breaker-open": is.OpenFor.String(), "breaker-open-max": is.OpenMax.String(),
	}
	for _, s := range Settings() {
		if want, one := shown[s.Flag]; one && s.Default != want {
			t.Errorf("%s: 0 means %s, and %s is shown", s.Flag, want, s.Default)
		}
		delete(shown, s.Flag)
	}
	if len(shown) != 0 {
		t.Errorf("no settings: %v", shown)
	}
	given := Config{BreakerShare: 7, BreakerCalls: 8, BreakerWindow: 9, BreakerOpen: 10, BreakerOpenMax: 11}
	if is, want := given.Breakers(), (core.BreakerPolicy{SharePct: 7, CallsMin: 8, Window: 9, OpenFor: 10, OpenMax: 11}); is != want {
		t.Errorf("%+v, want %+v", is, want)
	}
}

// TestFlagsInErrors: the flags that refusals of the streams name are there.
func TestFlagsInErrors(t *testing.T) {
	flags := map[string]bool{}
	for _, s := range Settings() {
		flags[s.Flag] = true
	}
	for _, name := range natsbus.Flags() {
		if !flags[name] {
			t.Errorf("there is no flag --%s", name)
		}
	}
}

// TestRoleAgents: the role runs alone, then without the settings of a node, and beside the roles of nodes, of which it is none.
func TestRoleAgents(t *testing.T) {
	c := good()
	c.Roles, c.Agents, c.HTTPAddr = []string{RoleAgents}, "agents.yaml", "0.0.0.0:7310"
	if err := c.Validate(); err != nil || !c.OnlyAgents() {
		t.Errorf("alone: %v", err)
	}
	c.HTTPAddr, c.Roles = "", []string{RoleIngest, RoleAgents}
	beside := c.WithoutAgents()
	if err := errors.Join(c.Validate(), beside.Validate()); err != nil || c.OnlyAgents() || beside.Has(RoleAgents) || len(beside.Roles) != 1 {
		t.Errorf("beside a node: %v, roles %v", err, beside.Roles)
	}
}

// TestNATSOptions: a connection has all that the links say, whichever command makes it.
func TestNATSOptions(t *testing.T) {
	l := Links{NATSURL: "url", NATSContext: "context", NATSCreds: "creds", NATSCA: "ca", NATSCert: "cert", NATSKey: "key", NATSInbox: "inbox"}
	want := natsbus.Options{URL: "url", Name: "n1", Context: "context", CredentialsFile: "creds", CAFile: "ca", CertFile: "cert", KeyFile: "key", InboxPrefix: "inbox", Namespace: "prod"}
	if got := l.NATS("n1", "prod", nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
