package law

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// module is the path that the map's short names are relative to.
const module = "duly.dev/duly"

// place is where a package stands.
type place struct {
	// imports are the packages of this module it may import: paths relative to
	// the module, "." for the root package, "x/..." for x and all below it.
	imports []string
	// links are the guarded dependencies from outside it may import: keys of
	// guarded.
	links []string
	// std, where set, are the only packages of the standard library it may import.
	std []string
}

// The four roles. None imports another, not even in a test: what needs two of
// them belongs in internal/sim or internal/node.
var roles = []string{"ingest", "scheduler", "agents", "supervisor"}

// packages is the law of imports: every package of the module and what it may
// import of the others. Arrows point down only.
//
//	programs   cmd/duly        bench (its own module)          examples
//	doors      dev               ↓         duly (the root package)
//	wiring     internal/node     ↓               ↓
//	roles      ingest scheduler agents supervisor | adapters: internal/natsbus schema
//	wire       internal/wire                         (names and encodings, no connection)
//	decision                internal/core
//
// Test files are free to import what they exercise, but no role's tests import
// another role.
var packages = map[string]place{
	// Programs.
	"cmd/duly/...": {
		imports: []string{"cmd/duly/...", "internal/say", "internal/agentrole", "internal/sheet", "dev", "ui", ".", "examples/...", "internal/config", "internal/node", "internal/operate", "internal/replay", "internal/books", "internal/chain", "internal/egress", "internal/wire", "internal/natsbus", "internal/rights", "schema/...", "internal/submit", "internal/core", "internal/taskform", "internal/planfile", "internal/pause", "internal/redact", "internal/localpg", "internal/seal", "internal/schedule", "internal/versions", "internal/conformance", "internal/shadow", "internal/option", "internal/quickjson", "internal/plancheck"},
		links:   []string{"nats"},
	},
	"bench/...": {
		imports: []string{"bench/...", "dev", "dev/natsserver", ".", "examples/...", "internal/config", "internal/node", "internal/wire", "internal/natsbus", "schema/...", "internal/core", "internal/operate", "internal/ground", "internal/localpg", "internal/freeport"},
		links:   []string{"nats", "sql", "plots"}, // sql: the database's own counters
	},
	// What a user would write: nothing but the public API.
	"examples/...": {imports: []string{"examples/...", "."}, links: []string{"nats"}},
	// An agent without this module, in one of its own.
	"examples/languages/go-micro": {links: []string{"nats", "sql"}},

	// Doors.
	"dev": {
		imports: []string{"dev/natsserver", ".", "ui", "internal/books", "internal/config", "internal/node", "internal/wire", "internal/natsbus", "schema/...", "internal/core", "internal/localpg"},
		links:   []string{"nats"},
	},
	// The embedded server, and the only package that links it.
	"dev/natsserver": {imports: []string{"internal/disk"}, links: []string{"nats-server"}},
	"ui":             {imports: []string{"internal/node", "internal/core"}},
	// A user's agent links this one: neither a server nor a database comes with it.
	".": {imports: []string{"agents", "internal/wire", "internal/natsbus", "internal/submit", "internal/core", "internal/pause", "internal/quickjson", "internal/seal"}, links: []string{"nats"}},

	// Agents of HTTP services, by configuration: `duly serve`'s, and no part of other agents.
	"agents/httpagent": {imports: []string{".", "agents", "internal/core", "internal/expr", "internal/planfile", "internal/quickjson", "internal/redact", "internal/egress"}, links: []string{"nats", "limits"}},

	// Submits in a user's transaction: the only one of a user's packages that a database driver comes with.
	"dulytx": {imports: []string{"."}, links: []string{"sql"}},

	// Ledgers beside the effects of a user's agent: with a database driver, and with JetStream.
	"agents/pgledger": {imports: []string{".", "agents", "internal/core", "internal/pause"}, links: []string{"sql"}},
	"agents/kvledger": {imports: []string{"agents", "internal/core", "internal/pause"}, links: []string{"nats"}},
	// Consumer groups of a user's service, with no part of the engine but what knows nothing of tasks.
	"group": {imports: []string{"internal/pause", "internal/rendezvous"}, links: []string{"nats", "sql"}},
	// For the tests of a user's ledger.
	"agents/ledgertest": {imports: []string{"agents", "internal/core"}},

	// For the tests of a user's handlers.
	"dulytest": {imports: []string{".", "agents", "internal/core", "internal/expr", "internal/jsonschema"}, links: []string{"nats"}},

	// Wiring.
	"internal/node": {
		imports: []string{"internal/say", "internal/config", "internal/disk", "internal/api", "internal/operate", "internal/repair", "internal/schedules", "internal/auth", "internal/live", "internal/console", "internal/alerts", "internal/telemetry", "internal/books", "internal/chain", "internal/replay", "internal/health", "internal/ground", "internal/redact", "internal/egress", "ingest", "scheduler", "agents", "supervisor", "internal/wire", "internal/natsbus", "internal/rights", "schema/...", "internal/submit", "internal/core", "internal/expr", "internal/pause", "internal/forecast", "internal/versions", "internal/jsonschema", "internal/plancheck"},
		links:   []string{"nats"},
	},

	// The role agents, which is no part of a node: no database comes with it.
	"internal/agentrole": {imports: []string{".", "agents/httpagent", "internal/auth", "internal/config", "internal/natsbus", "internal/health", "internal/redact"}, links: []string{"nats"}},

	// The faces: what clients and operators ask over HTTP and NATS, over ports.
	"internal/api": {imports: []string{"internal/say", "internal/plancheck", "internal/sheet", "ingest", "internal/submit", "internal/core", "internal/expr", "internal/planform", "internal/taskform", "internal/pause", "internal/quickjson", "internal/seal", "internal/operate", "internal/replay", "internal/versions", "internal/jsonschema", "internal/auth", "internal/live", "internal/alerts", "internal/schedule"}},
	// A world in memory behind the API, for the tests of all that asks it.
	"internal/api/apitest": {imports: []string{"ingest", "internal/api", "internal/submit", "internal/core", "internal/jsonschema", "internal/operate", "internal/auth", "internal/live", "internal/alerts", "internal/schedule"}},
	// What operators read and do: types and ports of the faces below, and the actions on one task.
	"internal/operate": {imports: []string{"internal/say", "internal/submit", "internal/core", "internal/near", "internal/quickjson", "internal/schedule"}},
	// When a task is submitted again and again: cron, intervals, zones. Pure.
	"internal/schedule": {imports: []string{"internal/near", "internal/core", "internal/quickjson"}},
	// Schedules as operators change them and the leading supervisor carries them out.
	"internal/schedules": {imports: []string{"internal/submit", "internal/core", "internal/pause", "internal/operate", "internal/schedule"}},
	// Actions on many tasks: previews, waves, rehearsals.
	"internal/repair": {imports: []string{"internal/say", "internal/submit", "internal/quickjson", "internal/core", "internal/pause", "internal/operate", "internal/seal"}},
	// Who asks: tokens, sessions, roles.
	"internal/auth": {imports: []string{"internal/core", "internal/egress", "internal/operate", "internal/pause"}},
	// One reader a process for everything that is shown live.
	"internal/live": {imports: []string{"internal/core", "internal/pause", "internal/operate"}},
	// The pages for operators.
	"internal/console": {imports: []string{"internal/say", "internal/quickjson", "internal/submit", "internal/core", "internal/planfile", "internal/sheet", "internal/expr", "internal/jsonschema", "internal/operate", "internal/auth", "internal/live", "internal/seal", "internal/replay"}},
	// Alerts to the outside: webhooks and mail.
	"internal/alerts": {imports: []string{"internal/say", "internal/core", "internal/egress", "internal/pause", "internal/operate", "internal/redact"}, links: []string{"mail"}},
	// Metrics and traces.
	"internal/telemetry": {imports: []string{"internal/core", "internal/egress", "internal/operate"}, links: []string{"metrics", "spans"}},
	// Journal and services compared; the journal played again and proven.
	"internal/books":  {imports: []string{"internal/say", "internal/core", "internal/pause", "internal/operate", "internal/wire"}},
	"internal/replay": {imports: []string{"internal/core", "internal/planform", "internal/say"}},
	// Versions of a plan compared, by their fields and by what tasks come to.
	"internal/versions": {imports: []string{"internal/say", "internal/core", "internal/planform", "internal/operate", "internal/replay"}},
	"internal/chain":    {imports: []string{"internal/core", "internal/say"}},

	// How long steps take, and what follows for deadlines.
	"internal/forecast": {imports: []string{"internal/core"}},

	// Every setting of a node.
	"internal/config": {imports: []string{"internal/wire", "internal/natsbus", "internal/core"}},

	// Roles declare the ports they need; the wiring plugs the adapters in.
	"ingest":    {imports: []string{"internal/say", "internal/submit", "internal/core", "internal/quickjson", "internal/pause"}},
	"scheduler": {imports: []string{"internal/core", "internal/rendezvous"}},
	"agents":    {imports: []string{"internal/core", "internal/quickjson"}},
	// It reads and asks, and restarts nothing: it has neither processes nor files nor sockets.
	"supervisor": {imports: []string{"internal/core", "internal/pause"}, std: []string{"cmp", "context", "errors", "fmt", "log/slog", "slices", "sync", "time"}},

	// Adapters.
	"internal/natsbus": {imports: []string{"internal/members", "internal/wire", "internal/submit", "internal/core", "internal/chain", "internal/pause", "internal/redact"}, links: []string{"nats"}},
	"schema/...":       {imports: []string{"schema", "internal/core", "internal/chain", "internal/operate", "internal/schedule"}, links: []string{"sql"}},
	// One dialect a package; none sees another.
	"schema":          {imports: []string{"internal/core", "internal/chain", "internal/operate", "internal/pause", "internal/planform"}, links: []string{"sql"}},
	"schema/postgres": {imports: []string{"schema", "internal/core", "internal/chain", "internal/operate", "internal/option", "internal/pause"}, links: []string{"sql"}},
	"schema/sqlite":   {imports: []string{"schema", "internal/core", "internal/operate", "internal/option"}, links: []string{"sql"}},
	"schema/dialects": {imports: []string{"schema", "schema/postgres", "schema/sqlite", "internal/option"}},

	// Every name and encoding on NATS, without a connection: what the author of an SDK or
	// of a conformance kit reads.
	"internal/wire": {imports: []string{"internal/submit", "internal/core", "internal/planform", "internal/taskform", "internal/quickjson"}},
	// The golden messages, for the tests of all that speaks the protocol.
	"internal/wire/wiretest": {},

	// The rules of the protocol, played against an agent that runs.
	"internal/conformance": {imports: []string{"internal/wire", "internal/egress", "internal/core", "internal/pause", "internal/option", "internal/quickjson"}, links: []string{"nats"}},

	// Copies of an agent's commands for another one, compared.
	"internal/shadow": {imports: []string{"internal/wire", "internal/core", "internal/decimal", "internal/option"}, links: []string{"nats"}},

	// The permissions on NATS that each role, agent and client needs.
	"internal/rights": {imports: []string{"internal/wire", "internal/natsbus", "internal/core"}},

	// A submission as its submitter says it, between all doors, and one that says everything, for their tests.
	"internal/submit":            {imports: []string{"internal/core", "internal/quickjson"}},
	"internal/submit/submittest": {imports: []string{"internal/submit"}},

	// A plan as JSON, the same on the wire and in the store.
	// A task as JSON, the same over HTTP and on NATS.
	"internal/taskform": {imports: []string{"internal/core"}},
	"internal/planform": {imports: []string{"internal/quickjson", "internal/core", "internal/decimal", "internal/near"}},
	// Payloads checked by JSON Schema.
	"internal/jsonschema": {imports: []string{"internal/core", "internal/decimal", "internal/near", "internal/seal"}},

	// The expressions of plans, compiled and evaluated; what the core is free of.
	"internal/expr": {imports: []string{"internal/quickjson", "internal/core", "internal/decimal", "internal/jsonschema", "internal/near", "internal/seal"}, links: []string{"cel"}},

	// A plan as a file, YAML or JSON, with errors that point into it.
	"internal/plancheck": {imports: []string{"internal/core", "internal/expr", "internal/jsonschema"}},
	"internal/planfile":  {imports: []string{"internal/quickjson", "internal/sheet", "internal/decimal", "internal/jsonschema", "internal/near", "internal/core", "internal/planform", "internal/expr"}},

	// The decision: pure, so that a simulator and a proof can hold all of it.
	"internal/core": {imports: []string{"internal/say"}, std: []string{"cmp", "crypto/sha256", "errors", "fmt", "iter", "math", "math/bits", "slices", "time"}},

	// What any package may need, and that knows nothing of tasks.
	"internal/disk":       {}, // how much room a disk has
	"internal/members":    {}, // which nodes live, by what a watch says
	"internal/near":       {}, // how far names are apart
	"internal/decimal":    {}, // whether two numbers of JSON are the same
	"internal/quickjson":  {}, // checks payloads
	"internal/option":     {}, // refuses options by name
	"internal/pause":      {}, // waits, or until a context ends
	"internal/rendezvous": {}, // places partitions on nodes
	"internal/say":        {}, // the sentences that operators read
	"internal/seal":       {}, // tells an encrypted payload, without a key

	// Aids of the tests.
	"internal/sim":       {imports: []string{"internal/members", "ingest", "scheduler", "agents", "supervisor", "internal/submit", "internal/core", "internal/forecast"}},
	"internal/sim/run":   {imports: []string{"internal/sim", "schema/sqlite"}},
	"internal/sim/fleet": {imports: []string{"internal/sim"}},
	// A PostgreSQL of this machine's binaries, for `duly demo` and `duly dev`; the tests' databases on it.
	"internal/localpg":  {imports: []string{"internal/freeport"}},
	"internal/natstest": {imports: []string{"dev/natsserver"}},
	"internal/freeport": {},
	"internal/pgtestdb": {imports: []string{"internal/localpg", "schema", "schema/postgres"}, links: []string{"sql"}},
	"internal/testrun":  {imports: []string{"internal/disk", "internal/pgtestdb"}},     // what all tests of a run share
	"internal/pgfault":  {imports: []string{"internal/pause"}, links: []string{"sql"}}, // the protocol, not the database

	// What every process serves, whatever its roles.
	"internal/health": {imports: []string{"internal/redact"}},
	// CSV for spreadsheets and terminals.
	"internal/sheet": {},
	// Where requests may go, and what of them.
	"internal/egress": {},
	// Takes passwords out of what is logged or answered.
	"internal/redact": {},
	// What a node stands on; only internal/node decides with it.
	"internal/ground": {imports: []string{"internal/pause"}},
	"internal/law":    {},
}

// guarded are dependencies that only the packages naming them in links may
// import outside their tests, each with the import paths (and all below them)
// that count as it.
var guarded = map[string][]string{
	"sql": {
		"database/sql",
		"github.com/jackc",
		"github.com/lib/pq",
		"modernc.org/sqlite",
		"github.com/mattn/go-sqlite3",
		"github.com/pressly/goose",
		"github.com/cockroachdb",
	},
	// What is below SQLite's driver: no package of ours goes there.
	"below sqlite": {"modernc.org/libc"},
	"nats":         {"github.com/nats-io/nats.go"},
	"nats-server":  {"github.com/nats-io/nats-server"},
	"metrics":      {"github.com/prometheus"}, // no role counts by a library
	"spans":        {"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto"},
	"mail":         {"github.com/wneessen/go-mail"},
	"cel":          {"cel.dev/cel-go"},                               // no user's agent has it
	"limits":       {"github.com/failsafe-go"},                       // retries, breakers: no user's agent has them
	"plots":        {"gonum.org/v1/plot", "github.com/HdrHistogram"}, // no user's module graph has them
}

// wireName matches a subject, a stream or a bucket of the default namespace. No
// code may write one as a string literal: wire.Names builds them from the
// namespace of the installation, so that two share a NATS.
var wireName = regexp.MustCompile(`\bduly\.(do|undo|submit|in|tasks|reply|control|events|plans|live|ask|batch|dead|alerts)\b|` +
	`\bduly\.%|(\b|_)DULY_(TASKS|CONTROL|EVENTS|DEAD|ALERTS|NODES|KEYS|PARTITIONS|%)`)

// wireBeginnings are what names are put together from.
var wireBeginnings = []string{"duly.", "DULY_", "duly-", "KV_DULY_", "$KV.DULY_"}

// TestSource holds the repository to the law.
//
// covers: S34, S35, G5
func TestSource(t *testing.T) {
	root := repository(t)
	tree, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree) == 0 {
		t.Fatalf("no Go package found under %s: the law saw nothing", root)
	}
	for _, breach := range tree.breaches() {
		t.Error(breach)
	}
}

// TestMapIsSound catches slips in the map itself: a name that no package can have
// would allow nothing and say nothing.
//
// covers: S34, S35
func TestMapIsSound(t *testing.T) {
	for name, place := range packages {
		for _, target := range place.imports {
			if _, ok := packages[target]; !ok {
				t.Errorf("%s may import %q, which is not in the map", name, target)
			}
		}
		for _, link := range place.links {
			if guarded[link] == nil {
				t.Errorf("%s links %q, which is not guarded", name, link)
			}
		}
	}
	for _, role := range roles {
		for _, got := range packages[role].imports {
			if got != "internal/core" && got != "internal/submit" && got != "internal/quickjson" && got != "internal/pause" && got != "internal/rendezvous" && got != "internal/say" {
				t.Errorf("role %s may import %s, want internal/core, internal/submit, and what knows nothing of tasks", role, got)
			}
		}
	}
}

// repository is the module's root folder.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("no module at %s: %v", root, err)
	}
	return root
}
