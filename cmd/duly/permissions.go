package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/wire"
)

// kindNode is a node that runs all roles.
const kindNode = "node"

type permissionsCmd struct {
	Users []string `arg:"" name:"users" help:"Users, each as [name=]kind[:names]: ingest, scheduler, supervisor (roles of nodes); node (all three); agent:<names> (of a Go program), foreign-agent:<names> (of any other NATS client); submitter:<types>; approver:<types>; operator. A name given again adds to its user."`

	Namespace    string        `env:"DULY_NAMESPACE" default:"duly" help:"That of the installation."`
	StatusTo     []string      `name:"reply-to-prefixes" env:"DULY_REPLY_TO_PREFIXES" default:"_INBOX.,_INBOX_,status." help:"As of serve: where schedulers may send statuses. The inboxes of submitters in the same call are added where a prefix allows them."`
	AnswerWithin time.Duration `default:"24h" help:"How long agents may take to answer one command: not less than the longest complete-by of their steps."`
	TaskStreams  int           `default:"1" env:"DULY_TASK_STREAMS" help:"Task streams, as of serve."`
	PlainDoor    bool          `help:"Submitters may publish to the task stream themselves, which also lets them make NATS send its confirmations to any subject: see docs/operations/permissions.md."`
	Events       bool          `help:"Submitters may read the event stream about their types, which has the same consequence, and nodes of role ingest all of it, for GET /v1/events. Without it Go clients say WithoutEvents."`
	JSON         bool          `name:"json" help:"Print JSON, for tools that make users of it."`
}

// natsUser is one user with its permissions, as JSON.
type natsUser struct {
	User        string          `json:"user"`
	Kinds       []string        `json:"kinds"`
	InboxPrefix string          `json:"inbox_prefix,omitempty"`
	Permissions natsPermissions `json:"permissions"`
}

// natsPermissions are those of nats-server's configuration.
type natsPermissions struct {
	Publish   natsLists    `json:"publish"`
	Subscribe natsLists    `json:"subscribe"`
	Responses *natsAnswers `json:"allow_responses,omitempty"`
}

type natsLists struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

type natsAnswers struct {
	Max     int    `json:"max"`
	Expires string `json:"expires"`
}

// Run prints the users.
func (c *permissionsCmd) Run(std streams) error {
	users, err := c.users()
	if err != nil {
		return useError{err}
	}
	if c.JSON {
		return writeJSON(std.out, users)
	}
	_, err = io.WriteString(std.out, c.config(users))
	return err
}

// asked is what was asked for of one user.
type asked struct {
	user  string
	kinds []askedKind
}

type askedKind struct {
	kind  string
	names []string
}

// parse reads the arguments, in their order.
func (c *permissionsCmd) parse() ([]asked, error) {
	var all []asked
	for _, arg := range c.Users {
		rest, user := arg, ""
		if name, after, named := strings.Cut(arg, "="); named {
			if err := core.CheckName("name of a user", name); err != nil {
				return nil, err
			}
			rest, user = after, name
		}
		kind, list, has := strings.Cut(rest, ":")
		if known := append([]string{kindNode}, rights.Kinds...); !slices.Contains(known, kind) {
			return nil, fmt.Errorf("%q: unknown kind of user %q, want one of %s", arg, kind, strings.Join(known, ", "))
		}
		if kind == kindNode && has {
			return nil, fmt.Errorf("%q: %s has no names", arg, kindNode)
		}
		var names []string
		if has {
			names = strings.Split(list, ",")
		}
		if user == "" {
			user = strings.ReplaceAll(strings.Join(append([]string{kind}, names...), "-"), ".", "-")
			if err := core.CheckName("name of the user", user); err != nil {
				if _, wrong := rights.Of(kind, names, rights.Options{}); wrong != nil {
					return nil, wrong
				}
				return nil, fmt.Errorf("%s: %w: give it one, as in shop=%s", arg, err, arg)
			}
		}
		kinds := []askedKind{{kind, names}}
		if kind == kindNode {
			kinds = []askedKind{{kind: rights.Ingest}, {kind: rights.Scheduler}, {kind: rights.Supervisor}}
		}
		i := slices.IndexFunc(all, func(a asked) bool { return a.user == user })
		if i < 0 {
			i, all = len(all), append(all, asked{user: user})
		}
		all[i].kinds = append(all[i].kinds, kinds...)
	}
	return all, nil
}

func (c *permissionsCmd) users() ([]natsUser, error) {
	names, err := wire.NewNames(c.Namespace)
	if err != nil {
		return nil, err
	}
	if c.AnswerWithin < time.Second {
		return nil, fmt.Errorf("answer-within: %v, want 1s or more", c.AnswerWithin)
	}
	if c.TaskStreams < 1 || c.TaskStreams > wire.TaskStreamsMax {
		return nil, fmt.Errorf("task-streams: %d, want 1 to %d", c.TaskStreams, wire.TaskStreamsMax)
	}
	all, err := c.parse()
	if err != nil {
		return nil, err
	}
	c.Namespace = names.Namespace()
	o := rights.Options{Names: names, StatusTo: c.StatusTo, AnswerWithin: c.AnswerWithin, PlainDoor: c.PlainDoor, Events: c.Events, TaskStreams: c.TaskStreams}
	for _, a := range all {
		if slices.ContainsFunc(a.kinds, func(k askedKind) bool { return k.kind == rights.Submitter }) {
			o.Inboxes = append(o.Inboxes, wire.InboxOf(a.user))
		}
	}
	users := make([]natsUser, len(all))
	of := map[string]string{}
	for i, a := range all {
		password := c.passwordOf(a.user)
		if other, taken := of[password]; taken {
			return nil, fmt.Errorf("users %s and %s would have one password, $%s: give them other names", other, a.user, password)
		}
		of[password] = a.user
		o.Inbox = wire.InboxOf(a.user)
		u := natsUser{User: a.user}
		var sets []rights.Set
		for _, k := range a.kinds {
			set, err := rights.Of(k.kind, k.names, o)
			if err != nil {
				return nil, fmt.Errorf("user %s: %w", a.user, err)
			}
			sets = append(sets, set)
			u.Kinds = append(u.Kinds, strings.TrimSuffix(k.kind+":"+strings.Join(k.names, ","), ":"))
		}
		u.Permissions = permissionsOf(rights.Merge(sets...))
		if slices.Contains(u.Permissions.Subscribe.Allow, o.Inbox+".>") {
			u.InboxPrefix = o.Inbox
		}
		users[i] = u
	}
	return users, nil
}

func permissionsOf(set rights.Set) natsPermissions {
	var p natsPermissions
	for _, r := range set.Rights {
		to := &p.Subscribe
		if r.Publish {
			to = &p.Publish
		}
		to.Allow = append(to.Allow, r.String())
	}
	slices.Sort(p.Publish.Allow)
	slices.Sort(p.Subscribe.Allow)
	p.Publish.Deny = set.DenyPublish
	if len(p.Publish.Allow) == 0 {
		p.Publish.Deny = []string{">"} // without a list the server allows everything
	}
	if set.Answers.Max > 0 {
		p.Responses = &natsAnswers{set.Answers.Max, set.Answers.Within.String()}
	}
	return p
}

// config is what goes into nats-server's configuration.
func (c *permissionsCmd) config(users []natsUser) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Users of nats-server for the Duly installation %q: include this in an account\n# (or in authorization { }) and give each a password. docs/operations/permissions.md says more.\nusers = [\n", c.Namespace)
	for _, u := range users {
		fmt.Fprintf(&b, "  { # %s\n", strings.Join(u.Kinds, " "))
		if u.InboxPrefix != "" {
			fmt.Fprintf(&b, "    # connects with the inbox prefix %s\n", u.InboxPrefix)
		}
		fmt.Fprintf(&b, "    user = %s, password = $%s\n    permissions = {\n", quoted(u.User), c.passwordOf(u.User))
		for _, list := range []struct {
			what string
			of   natsLists
		}{{"publish", u.Permissions.Publish}, {"subscribe", u.Permissions.Subscribe}} {
			fmt.Fprintf(&b, "      %s = {\n", list.what)
			writeList(&b, "allow", list.of.Allow)
			writeList(&b, "deny", list.of.Deny)
			b.WriteString("      }\n")
		}
		if r := u.Permissions.Responses; r != nil {
			fmt.Fprintf(&b, "      allow_responses = { max = %d, expires = %s }\n", r.Max, quoted(r.Expires))
		}
		b.WriteString("    }\n  }\n")
	}
	b.WriteString("]\n")
	return b.String()
}

func writeList(b *strings.Builder, name string, subjects []string) {
	if len(subjects) == 0 {
		return
	}
	fmt.Fprintf(b, "        %s = [\n", name)
	for _, s := range subjects {
		fmt.Fprintf(b, "          %s\n", quoted(s))
	}
	b.WriteString("        ]\n")
}

// passwordOf is the environment variable that nats-server takes a user's password from.
func (c *permissionsCmd) passwordOf(user string) string {
	name := c.Namespace + "_" + user + "_password"
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func quoted(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always can be
	}
	return strings.ReplaceAll(string(data), `\u003e`, ">")
}
