package rights

import (
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

func TestCovers(t *testing.T) {
	for _, x := range []struct {
		by, pattern   string
		covers, touch bool
	}{
		{"a.b", "a.b", true, true}, {"a.b", "a.c", false, false}, {"a.*", "a.b", true, true}, {"a.b", "a.*", false, true},
		{"a.>", "a.b.c", true, true}, {"a.>", "a", false, false}, {"a.>", "a.>", true, true}, {"a.*", "a.>", false, true}, {"a.>", "a.*", true, true},
		{">", "a", true, true}, {"a.*.c", "a.b.*", false, true}, {"a.*.c", "a.b.d", false, false}, {"a.b", "a.b.c", false, false}, {"a.b.c", "a.b", false, false},
		{"a.b.>", "a.>", false, true}, {"b.>", "a.>", false, false},
	} {
		if got := covers(x.by, x.pattern); got != x.covers {
			t.Errorf("%s covers %s: %v", x.by, x.pattern, got)
		}
		if got := overlap(x.by, x.pattern); got != x.touch {
			t.Errorf("%s overlaps %s: %v", x.by, x.pattern, got)
		}
	}
}

// TestMissing: what a user certainly lacks is missing, and nothing else: its rights may
// name the subjects that there are.
func TestMissing(t *testing.T) {
	set := Set{Rights: []Right{
		{Publish: true, Subject: "p.>", Needed: true}, {Publish: true, Subject: "seldom"}, {Subject: "s.*", Queue: "q", Needed: true}, {Subject: "t.>", Needed: true},
	}}
	all := []string{"p.>", "s.* q", "t.>"}
	for _, x := range []struct {
		what string
		has  natsbus.Permissions
		want []string
	}{
		{"no limits", natsbus.Permissions{}, nil},
		{"nothing of it", perms("x", "x", "", ""), all},
		{"exactly", perms("p.>", "s.* q,t.>", "", ""), nil},
		{"more", perms(">", ">", "", ""), nil},
		{"in part", perms("p.one", "s.one q,t.one", "", ""), nil},
		{"other queue group", perms("p.>", "s.* r,t.>", "", ""), []string{"s.* q"}},
		{"queue group where none is", perms("p.>", "s.*,t.> q", "", ""), []string{"t.>"}},
		{"denied", perms("", "", "p.>", "s.>"), []string{"p.>", "s.* q"}},
		{"denied in part", perms("", "", "p.one", "s.one"), nil},
		{"denied to another queue group", perms("", "", "", "s.* r"), nil},
	} {
		var got []string
		for _, r := range set.Missing(x.has) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: missing %q, want %q", x.what, got, x.want)
		}
	}
	if r := (Right{Publish: true, Subject: "p.a"}); !r.Allowed(perms("p.*", "", "", "")) || r.Allowed(perms("p.b", "", "", "")) || r.Allowed(perms("p.*", "", "p.a", "")) {
		t.Error("Allowed is not exact")
	}
	if r := set.Find(natsbus.Denial{Subject: "p.x"}); r == nil || r.Subject != "p.>" {
		t.Errorf("found %+v", r)
	}
	if r := set.Find(natsbus.Denial{Subject: "p.x", Subscribe: true}); r != nil {
		t.Errorf("found %+v", r)
	}
}

func perms(pub, sub, denyPub, denySub string) natsbus.Permissions {
	list := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	return natsbus.Permissions{Publish: natsbus.PermissionLists{Allow: list(pub), Deny: list(denyPub)}, Subscribe: natsbus.PermissionLists{Allow: list(sub), Deny: list(denySub)}}
}

// TestSetsKeepToTheirNamespace: with a namespace no right is one of another's.
func TestSetsKeepToTheirNamespace(t *testing.T) {
	names, err := wire.NewNames("prod")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Names: names, Inbox: "_INBOX_u", StatusTo: wire.DefaultReplyPrefixes, Inboxes: []string{"_INBOX_shop"}, AnswerWithin: time.Hour, PlainDoor: true, Events: true}
	for _, kind := range Kinds {
		var of []string
		if kind == Agent || kind == ForeignAgent || kind == Submitter || kind == approver {
			of = []string{"x"}
		}
		set, err := Of(kind, of, o)
		if err != nil || len(set.Rights) == 0 {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, r := range set.Rights {
			known := false
			for _, of := range []string{"prod.", "PROD_", "prod-x", "_INBOX_u.", "_INBOX_shop.", "_INBOX.", "status."} {
				known = known || strings.Contains(r.Subject, of)
			}
			for _, common := range []string{"$JS.API.INFO", natsbus.SubjectUserInfo, "$SRV.INFO.*", "$SRV.STATS.*", "$SRV.INFO", "$SRV.PING", "$SRV.STATS"} {
				known = known || r.Subject == common
			}
			if !known || strings.Contains(strings.ToLower(r.Subject), "duly") {
				t.Errorf("%s may use %s", kind, r)
			}
		}
	}
}

// TestWider: what is allowed beyond a set is listed, what a denial takes back is not, and no list at all is everything.
func TestWider(t *testing.T) {
	set, err := Of(Operator, nil, Options{Inbox: "_INBOX_ops"})
	if err != nil {
		t.Fatal(err)
	}
	var least natsbus.Permissions
	for _, r := range set.Rights {
		list := &least.Subscribe
		if r.Publish {
			list = &least.Publish
		}
		list.Allow = append(list.Allow, r.String())
	}
	for _, test := range []struct {
		change             func(*natsbus.Permissions)
		publish, subscribe string
	}{
		{func(*natsbus.Permissions) {}, "", ""},
		{func(p *natsbus.Permissions) { p.Publish.Allow = append(p.Publish.Allow, "duly.>", "a.b") }, "a.b duly.>", ""},
		{func(p *natsbus.Permissions) {
			p.Publish.Allow, p.Publish.Deny = append(p.Publish.Allow, "a.b"), []string{"a.*"}
		}, "", ""},
		{func(p *natsbus.Permissions) { p.Publish.Allow = append(p.Publish.Allow, "status.shop.>") }, "", ""},
		{func(p *natsbus.Permissions) { p.Publish.Allow = append(p.Publish.Allow, "statuses") }, "statuses", ""},
		{func(p *natsbus.Permissions) { p.Subscribe.Allow = append(p.Subscribe.Allow, "duly.do.* q") }, "", "duly.do.* q"},
		{func(p *natsbus.Permissions) { *p = natsbus.Permissions{} }, ">", ">"},
		{func(p *natsbus.Permissions) { p.Publish = natsbus.PermissionLists{Deny: []string{">"}} }, "", ""},
	} {
		has := natsbus.Permissions{Publish: natsbus.PermissionLists{Allow: slices.Clone(least.Publish.Allow)}, Subscribe: natsbus.PermissionLists{Allow: slices.Clone(least.Subscribe.Allow)}}
		test.change(&has)
		publish, subscribe := set.Wider(has, []string{"status."})
		if strings.Join(publish, " ") != test.publish || strings.Join(subscribe, " ") != test.subscribe {
			t.Errorf("%+v: %q and %q, want %q and %q", has, publish, subscribe, test.publish, test.subscribe)
		}
	}
}
