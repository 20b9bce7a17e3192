package httpagent

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/planfile"
)

// Bounds of a file, and what it need not say.
const (
	servicesMax    = 100
	agentsMax      = 200
	stepsMax       = 200 // of one agent
	headersMax     = 32
	listMax        = 64
	runningMax     = 100_000
	waitingMax     = 1_000_000
	runningDefault = 256
	waitingDefault = 4096
	triesMax       = 20
	triesDefault   = 3
	backoffDefault = 50 * time.Millisecond
	capDefault     = time.Second
	answerDefault  = 256 << 10
	answerMost     = 16 << 20
	rateMax        = 1_000_000
	waitDefault    = time.Second
	durationMost   = time.Hour
)

// Agents are those of one file.
type Agents struct {
	services map[string]*service
	agents   []agent
}

// agent is one name, with the steps that it serves.
type agent struct {
	name             string
	running, waiting int
	steps            []step
}

// step is what is asked of a service for a step.
type step struct {
	name            string
	do, undo, probe *operation // undo and probe may be nil
}

// Load reads a file and all that it names: secrets, certificates, variables of the environment. The error has every
// mistake with line and column.
func Load(path string) (*Agents, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, planfile.BytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	return Read(path, data)
}

// Read is Load of what is read already; name stands in errors.
func Read(name string, data []byte) (*Agents, error) {
	tree, root := planfile.Parse(name, "services and agents", data)
	if root == nil {
		return nil, tree.Err()
	}
	r := reader{t: tree, all: &Agents{services: map[string]*service{}}}
	var err error
	if r.call, err = newScopes(); err == nil {
		r.undone, err = newScopes(expr.Variable{Name: varKnown, Of: expr.BoolType}, expr.Variable{Name: varResult})
	}
	if err != nil {
		return nil, err
	}
	r.file(root)
	if err := tree.Err(); err != nil {
		return nil, err
	}
	return r.all, nil
}

// Names are those of the agents, in the order of the file.
func (a *Agents) Names() []string {
	names := make([]string, len(a.agents))
	for i := range a.agents {
		names[i] = a.agents[i].name
	}
	return names
}

// reader makes agents of a file's tree. What is wrong is noted and left out, so that one run tells all.
type reader struct {
	t            *planfile.Tree
	all          *Agents
	call, undone scopes
}

// file reads the whole.
func (r *reader) file(root *planfile.Value) {
	var services, agents *planfile.Value
	if !r.fields(root, "the file", fields{
		"services": func(m planfile.Member) { services = m.Value },
		"agents":   func(m planfile.Member) { agents = m.Value },
	}) {
		return
	}
	if services == nil || agents == nil {
		r.t.Wrong(root, "want services and agents, one of them is missing")
		return
	}
	r.each(services, "services", servicesMax, func(m planfile.Member) {
		if err := core.CheckName("service", m.Name); err != nil {
			r.t.WrongName(m, "%v", err)
		}
		r.all.services[m.Name] = r.service(m.Name, m.Value)
	})
	r.each(agents, "agents", agentsMax, func(m planfile.Member) {
		if err := core.CheckAgent(m.Name); err != nil {
			r.t.WrongName(m, "%v", err)
		}
		r.all.agents = append(r.all.agents, r.agent(m.Name, m.Value))
	})
}

// service reads one service.
func (r *reader) service(name string, v *planfile.Value) *service {
	s := &service{name: name, answerMax: answerDefault, limits: limits{tries: triesDefault, backoff: backoffDefault, backoffCap: capDefault, wait: waitDefault}}
	var address, secure, capAt *planfile.Value
	l := &s.limits
	r.fields(v, "a service", fields{
		"url":         func(m planfile.Member) { address = m.Value },
		"tls":         func(m planfile.Member) { secure = m.Value },
		"auth":        func(m planfile.Member) { s.auth = r.auth(m.Value) },
		"headers":     func(m planfile.Member) { s.headers = r.constants(m.Value) },
		"allow":       func(m planfile.Member) { s.allow = r.addresses(m) },
		"redirects":   func(m planfile.Member) { s.redirects = r.hosts(m) },
		"answer_max":  r.count(&s.answerMax, 1, answerMost),
		"tries":       r.count(&l.tries, 1, triesMax),
		"backoff":     r.duration(&l.backoff, time.Millisecond),
		"backoff_cap": func(m planfile.Member) { capAt = m.Value; r.duration(&l.backoffCap, time.Millisecond)(m) },
		"concurrent":  r.count(&l.concurrent, 1, runningMax),
		"rate":        r.count(&l.rate, 1, rateMax),
		"wait":        r.duration(&l.wait, 0),
		"breaker":     func(m planfile.Member) { l.breaker = r.breaker(m.Value) },
	})
	if l.backoffCap < l.backoff {
		if capAt != nil {
			r.t.Wrong(capAt, "backoff_cap is %v, want backoff (%v) or more", l.backoffCap, l.backoff)
		}
		l.backoffCap = l.backoff
	}
	var f files
	if secure != nil {
		r.fields(secure, "tls", fields{"ca": r.text(&f.ca), "cert": r.text(&f.cert), "key": r.text(&f.key), "server_name": r.text(&f.name)})
	}
	config, err := f.config()
	if err != nil {
		r.t.Wrong(cmp.Or(secure, v), "tls: %v", err)
	}
	if s.base = r.address(v, address, s); s.base == nil {
		s.base = &url.URL{Scheme: "https", Host: "localhost"} // the rest is read, too
	}
	s.client = s.newClient(config)
	s.limit()
	return s
}

// address reads the URL of a service.
func (r *reader) address(of, v *planfile.Value, s *service) *url.URL {
	if v == nil {
		r.t.Wrong(of, "service %s has no url", s.name)
		return nil
	}
	text, _ := v.Text()
	u, err := url.Parse(text)
	r.t.Blind(strings.Contains(text, "@"))
	defer r.t.Blind(false)
	switch {
	case err != nil:
		r.t.Wrong(v, "url: it cannot be read as one")
		return nil
	case u.User != nil:
		r.t.Wrong(v, "url: it has a user or a password, want auth for that")
		return nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		r.t.Wrong(v, "url: want http or https, a host and perhaps a path, as https://payments.example.org/v1, got %s", core.QuoteShort(text))
		return nil
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !s.allow.may(ip) && !s.allow.named(u.Hostname()) {
		r.t.Wrong(v, "url: %s: %v", ip, ErrAddress)
		return nil
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u
}

// auth reads how a service knows us.
func (r *reader) auth(v *planfile.Value) *auth {
	var a *auth
	found := 0
	r.t.Blind(true)
	defer r.t.Blind(false)
	r.fields(v, "auth", fields{
		"bearer": func(m planfile.Member) {
			found++
			a = &auth{header: "Authorization", before: "Bearer ", secret: r.secret(m.Value, "bearer", nil)}
		},
		"basic": func(m planfile.Member) {
			found++
			a = &auth{header: "Authorization", before: "Basic "}
			a.secret = r.secret(m.Value, "basic", fields{"user": r.text(&a.user)})
			if a.user == "" || strings.Contains(a.user, ":") {
				r.t.Wrong(m.Value, "basic: want a user without a colon")
			}
		},
		"header": func(m planfile.Member) {
			found++
			a = &auth{}
			a.secret = r.secret(m.Value, "header", fields{"name": func(n planfile.Member) { a.header = r.headerName(n) }})
			if a.header == "" {
				r.t.Wrong(m.Value, "header: it has no name")
			}
		},
	})
	if found != 1 {
		r.t.Wrong(v, "auth: want one of bearer, basic and header")
	}
	if a == nil || a.secret == nil {
		return nil
	}
	return a
}

// secret reads where a secret is, and the secret.
func (r *reader) secret(v *planfile.Value, what string, more fields) *secret {
	var file, env string
	all := fields{"file": r.text(&file), "env": r.text(&env)}
	maps.Copy(all, more)
	if !r.fields(v, what, all) {
		return nil
	}
	if (file == "") == (env == "") {
		r.t.Wrong(v, "%s: want file, a path, or env, a variable of the environment: a secret does not stand in this file", what)
		return nil
	}
	s, err := newSecret(file, env)
	if err != nil {
		r.t.Wrong(v, "%s: %v", what, err)
		return nil
	}
	return s
}

// breaker reads when a service is left alone.
func (r *reader) breaker(v *planfile.Value) *breaker {
	b := &breaker{percent: 50, calls: 20, within: 10 * time.Second, open: 5 * time.Second}
	if !r.fields(v, "a breaker", fields{"percent": r.count(&b.percent, 1, 100), "calls": r.count(&b.calls, 1, 100_000),
		"within": r.duration(&b.within, time.Second), "open": r.duration(&b.open, 10*time.Millisecond)}) {
		return nil
	}
	return b
}

// addresses reads what may be dialled besides public addresses.
func (r *reader) addresses(m planfile.Member) (a addresses) {
	for _, item := range r.list(m) {
		text, _ := item.Text()
		if prefix, err := netip.ParsePrefix(text); err == nil {
			a.networks = append(a.networks, prefix.Masked())
		} else if ip, err := netip.ParseAddr(text); err == nil {
			a.networks = append(a.networks, netip.PrefixFrom(ip, ip.BitLen()))
		} else if host(text) {
			a.names = append(a.names, strings.ToLower(text))
		} else {
			r.t.Wrong(item, "%s: want a host or a network, as orders.internal or 10.0.0.0/8, got %s", m.Name, core.QuoteShort(text))
		}
	}
	return a
}

// hosts reads a list of hosts.
func (r *reader) hosts(m planfile.Member) (all []string) {
	for _, item := range r.list(m) {
		text, _ := item.Text()
		if !host(text) {
			r.t.Wrong(item, "%s: want a host, as cdn.example.org, got %s", m.Name, core.QuoteShort(text))
		}
		all = append(all, strings.ToLower(text))
	}
	return all
}

// host reports whether a text can be the name of a host.
func host(text string) bool {
	return text != "" && len(text) < 254 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_' && r != ':'
	})
}

// constants reads headers that are the same for all requests.
func (r *reader) constants(v *planfile.Value) (all [][2]string) {
	r.each(v, "headers", headersMax, func(m planfile.Member) {
		text, ok := m.Value.Scalar()
		if _, err := inHeader(text, false); !ok || err != nil {
			r.t.Wrong(m.Value, "header %s: want text that a header can carry", core.ShortText(m.Name, 64))
		}
		all = append(all, [2]string{r.nameOf(m), text})
	})
	return all
}

// reserved are headers that are the client's own, or that would put a secret into the file.
var reserved = map[string]string{
	"Authorization": "a secret does not stand in this file: want auth of the service", "Cookie": "a secret does not stand in this file: want auth of the service",
	"Host": "it is that of the url", "Content-Length": "the client sets it", "Transfer-Encoding": "the client sets it", "Connection": "the client sets it",
	"Content-Type": "want content_type", "Trailer": "the client sets it", "Upgrade": "the client sets it", "Te": "the client sets it",
}

// nameOf reads the name of a header of a mapping.
func (r *reader) nameOf(m planfile.Member) string {
	name := http.CanonicalHeaderKey(m.Name)
	if !token(m.Name) {
		r.t.WrongName(m, "%s is no name of a header", core.QuoteShort(m.Name))
	} else if why := reserved[name]; why != "" {
		r.t.Blind(true)
		r.t.WrongName(m, "header %s: %s", name, why)
		r.t.Blind(false)
	}
	return name
}

// headerName reads the name of a header that is a value.
func (r *reader) headerName(m planfile.Member) string {
	text, _ := m.Value.Text()
	if !token(text) {
		r.t.Wrong(m.Value, "%s: want the name of a header, got %s", m.Name, core.QuoteShort(text))
	}
	return http.CanonicalHeaderKey(text)
}

// token reports whether a text can be the name of a header.
func token(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// fields are the members that a mapping may have, and what reads each.
type fields map[string]func(m planfile.Member)

// fields reads a mapping. Members that it may not have are noted, with the one that was meant.
func (r *reader) fields(v *planfile.Value, what string, all fields) bool {
	members, ok := v.Members()
	if !ok {
		r.t.Wrong(v, "%s: want a mapping, got %s", what, v.Kind())
		return false
	}
	known := slices.Sorted(maps.Keys(all))
	for _, m := range members {
		if read := all[m.Name]; read != nil {
			read(m)
		} else {
			r.t.Unknown(m, what, known)
		}
	}
	return true
}

// each reads a mapping of names.
func (r *reader) each(v *planfile.Value, what string, most int, read func(m planfile.Member)) {
	members, ok := v.Members()
	switch {
	case !ok:
		r.t.Wrong(v, "%s: want a mapping, got %s", what, v.Kind())
	case len(members) == 0 || len(members) > most:
		r.t.Wrong(v, "%d %s, want 1 to %d", len(members), what, most)
	default:
		for _, m := range members {
			read(m)
		}
	}
}

// list reads a list, or one value that stands for a list of one.
func (r *reader) list(m planfile.Member) []*planfile.Value {
	items, ok := m.Value.Items()
	if !ok {
		items = []*planfile.Value{m.Value}
	}
	if len(items) > listMax {
		r.t.Wrong(m.Value, "%s: %d values, want at most %d", m.Name, len(items), listMax)
		return nil
	}
	return items
}

func (r *reader) text(into *string) func(planfile.Member) {
	return func(m planfile.Member) {
		text, ok := m.Value.Text()
		if !ok || text == "" {
			r.t.Wrong(m.Value, "%s: want text, got %s", m.Name, m.Value.Kind())
		}
		*into = text
	}
}

func (r *reader) count(into *int, least, most int) func(planfile.Member) {
	return func(m planfile.Member) {
		text, _ := m.Value.Scalar()
		n, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
		if err != nil || n < least || n > most {
			r.t.Wrong(m.Value, "%s: want a whole number of %d to %d, got %s", m.Name, least, most, core.ShortText(cmp.Or(text, m.Value.Kind()), 40))
			return
		}
		*into = n
	}
}

func (r *reader) duration(into *time.Duration, least time.Duration) func(planfile.Member) {
	return func(m planfile.Member) {
		text, _ := m.Value.Scalar()
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > durationMost {
			r.t.Wrong(m.Value, "%s: want a duration of %v to %v, such as 2s, got %s", m.Name, least, durationMost, core.ShortText(cmp.Or(text, m.Value.Kind()), 40))
			return
		}
		*into = d
	}
}
