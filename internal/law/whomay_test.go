package law

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/wire"
)

const (
	permissionsPage = "docs/operations/permissions.md"
	whoMayBegin     = "<!-- generated: go test ./internal/law -run WhoMay -update -->\n\n"
	whoMayEnd       = "<!-- /generated -->"
)

// TestWhoMay: the pages say of each route of the API, each change of the console and each subject of NATS who may, as the
// source does.
//
// covers: OP17, C17
func TestWhoMay(t *testing.T) {
	s := sources(t)
	for page, parts := range map[string][]string{securityPage: {s.routes(t), s.consoleChanges(t)}, permissionsPage: {subjectsOfNATS(t)}} {
		whole := text(t, page)
		fresh := ""
		for _, part := range parts {
			before, rest, begins := strings.Cut(whole, whoMayBegin)
			_, after, ends := strings.Cut(rest, whoMayEnd)
			if !begins || !ends {
				t.Fatalf("%s has too few parts that are generated", page)
			}
			fresh += before + whoMayBegin + part + "\n" + whoMayEnd
			whole = after
		}
		fresh += whole
		if *update {
			if err := os.WriteFile(filepath.Join(s.root, filepath.FromSlash(page)), []byte(fresh), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if fresh != text(t, page) {
			t.Errorf("%s is not fresh: go test ./internal/law -run WhoMay -update", page)
		}
	}
}

// byRoles lists what roles may, by the roles.
type byRoles map[string][]string

func (all byRoles) add(what string, may func(operate.Role) bool) {
	var roles []string
	for _, role := range operate.Roles {
		if may(role) {
			roles = append(roles, string(role))
		}
	}
	key := strings.Join(roles, ", ")
	all[key] = append(all[key], "`"+what+"`")
}

// String is a list: those of the most roles first.
func (all byRoles) String() string {
	var b strings.Builder
	for _, roles := range slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(strings.Count(y, ",")-strings.Count(x, ","), strings.Compare(x, y))
	}) {
		slices.Sort(all[roles])
		wrap(&b, "- ", "**"+roles+"**: "+strings.Join(all[roles], ", "))
	}
	return b.String()
}

// routes are those of the API, as its description has them, which the tests of internal/api hold to the server.
func (s source) routes(t *testing.T) string {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Role   operate.Role `json:"x-role"`
			Client bool         `json:"x-client"`
		}
	}
	data, err := os.ReadFile(filepath.Join(s.root, "docs", "reference", "openapi.json"))
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := byRoles{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all.add(strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/v1"), func(role operate.Role) bool {
				return role.May(op.Role) || op.Client && role == operate.RoleClient
			})
		}
	}
	return all.String()
}

// consoleChanges are the forms of the console, as its routes have them, which its tests hold to the server.
func (s source) consoleChanges(t *testing.T) string {
	t.Helper()
	all, found := byRoles{}, 0
	for _, node := range s.nodes("internal/console") {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			continue
		}
		name, is := call.Fun.(*ast.Ident)
		if !is || name.Name != "post" && name.Name != "form" && name.Name != "dialog" {
			continue
		}
		role, said := call.Args[1].(*ast.SelectorExpr)
		if !said { // inside form and dialog themselves
			continue
		}
		needs := map[string]operate.Role{"RoleOperator": operate.RoleOperator, "RoleAdmin": operate.RoleAdmin}[role.Sel.Name]
		if needs == "" {
			t.Fatalf("a role that is not known: %v", call.Args[1])
		}
		found++
		all.add(strings.Trim(call.Args[0].(*ast.BasicLit).Value, `"`), func(role operate.Role) bool { return role.May(needs) })
	}
	if found < 25 {
		t.Fatalf("found %d changes of the console", found)
	}
	return all.String()
}

// natsUsers are the users of NATS whose subjects the page tells, with what a switch adds to them.
var natsUsers = []struct {
	name, kind, of string
	with           func(*rights.Options)
}{
	{"submitter", rights.Submitter, "<type>", nil},
	{"submitter `--plain-door`", rights.Submitter, "<type>", func(o *rights.Options) { o.PlainDoor = true }},
	{"submitter `--events`", rights.Submitter, "<type>", func(o *rights.Options) { o.Events = true }},
	{"agent", rights.Agent, "<agent>", nil}, {"foreign-agent", rights.ForeignAgent, "<agent>", nil}, {"operator", rights.Operator, "", nil},
	{"ingest", rights.Ingest, "", nil}, {"ingest `--events`", rights.Ingest, "", func(o *rights.Options) { o.Events = true }},
	{"scheduler", rights.Scheduler, "", nil}, {"supervisor", rights.Supervisor, "", nil},
}

// subjectsOfNATS are all subjects that some user has a right to, with who may publish and who may subscribe.
func subjectsOfNATS(t *testing.T) string {
	t.Helper()
	names, err := wire.NewNames(wire.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]map[string][]string{} // by subject and verb
	note := func(verb, subject, user, of string) {
		subject = strings.TrimSuffix(strings.NewReplacer(".x.", "."+of+".", ".x ", "."+of+" ", "duly-x", "duly-"+of).Replace(subject+"."), ".")
		if may[subject] == nil {
			may[subject] = map[string][]string{}
		}
		may[subject][verb] = append(may[subject][verb], user)
	}
	for _, user := range natsUsers {
		set := func(with func(*rights.Options)) rights.Set {
			o := rights.Options{Names: names, Inbox: "_INBOX_<user>", StatusTo: []string{"status."}, AnswerWithin: time.Hour}
			if with != nil {
				with(&o)
			}
			set, err := rights.Of(user.kind, []string{"x"}[:min(1, len(user.of))], o)
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		base := set(nil).Rights
		for _, r := range set(user.with).Rights {
			if user.with != nil && slices.Contains(base, r) {
				continue
			}
			verb := "subscribe"
			if r.Publish {
				verb = "publish"
			}
			note(verb, r.String(), user.name, user.of)
		}
		if user.with != nil {
			for _, subject := range set(user.with).DenyPublish {
				note("publish **not**", subject, user.name, user.of)
			}
		}
	}
	var b strings.Builder
	for _, subject := range slices.Sorted(maps.Keys(may)) {
		var said []string
		for _, verb := range slices.Sorted(maps.Keys(may[subject])) {
			said = append(said, verb+" "+strings.Replace(strings.Join(may[subject][verb], ", "), "ingest, scheduler, supervisor", "node", 1))
		}
		wrap(&b, "- ", "`"+subject+"`: "+strings.Join(said, "; "))
	}
	return b.String()
}
