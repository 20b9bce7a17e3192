package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/template"

	"duly.dev/duly/internal/wire"
)

// The users of a round's NATS servers. Their passwords are their names, unless one is
// rotated.
const (
	userDuly   = "duly"
	userAgents = "agents"
	userLoad   = "load" // the harness, too
)

// natsConf is the configuration of one nats-server.
type natsConf struct {
	Name, Dir string
	Port      int
	Cluster   int // port for the others; 0: a server by itself
	Routes    []string
	Rotated   bool // Duly's password is another one
	Deaf      bool // agents may not listen to commands
	path      string
}

// Commands are the subjects of all commands to do something.
func (c *natsConf) Commands() []string {
	return []string{wire.Names{}.CommandSubject(">", false), wire.Names{}.BatchSubject(">", false)}
}

// natsText is what a server of a round is configured with: as the one inside `duly dev`,
// and with users.
var natsText = template.Must(template.New("nats").Parse(`server_name: {{.Name}}
listen: "127.0.0.1:{{.Port}}"
max_payload: 8MB
max_pending: 64MB
disable_sublist_cache: true
jetstream { store_dir: "{{.Dir}}", sync_interval: always }
authorization {
  users: [
    { user: duly, password: "{{if .Rotated}}rotated{{else}}duly{{end}}" }
    { user: agents, password: agents{{if .Deaf}}, permissions: { subscribe: { deny: [{{range .Commands}} "{{.}}", {{end}}] } }{{end}} }
    { user: load, password: load }
  ]
}
{{- if .Cluster}}
cluster {
  name: chaos
  listen: "127.0.0.1:{{.Cluster}}"
  routes: [{{range .Routes}} "{{.}}", {{end}}]
}
{{- end}}
`))

// write writes the file.
func (c *natsConf) write(dir string) error {
	c.path = filepath.Join(dir, c.Name+".conf")
	var text bytes.Buffer
	if err := natsText.Execute(&text, c); err != nil {
		return fmt.Errorf("configuration of %s: %w", c.Name, err)
	}
	if err := os.WriteFile(c.path, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("configuration of %s: %w", c.Name, err)
	}
	return nil
}

// reload changes the configuration of the server that is by itself, as an operator does:
// the file first, then a signal.
func (w *world) reload(change func(*natsConf)) error {
	change(w.natsConf)
	if err := w.natsConf.write(w.dir); err != nil {
		return err
	}
	return w.nats[0].signal(syscall.SIGHUP)
}

// as puts a user into the URLs of servers.
func as(user string, hosts ...string) string {
	var b bytes.Buffer
	for i, h := range hosts {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "nats://%s:%s@%s", user, user, h)
	}
	return b.String()
}
