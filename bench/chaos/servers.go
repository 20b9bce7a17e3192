package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"duly.dev/duly/bench/internal/procfs"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/localpg"
)

// openServers starts NATS, PostgreSQL and the roles.
func (w *world) openServers(ctx context.Context) error {
	if err := w.openNATS(ctx); err != nil {
		return err
	}
	var dir string
	var err error
	if w.stage.topology == single {
		w.dbDisk, dir, err = w.disk("postgres", w.pgProcesses)
	} else {
		dir = filepath.Join(w.dir, "postgres")
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	if w.pg, err = localpg.Start(localpg.Options{Dir: dir, Settings: map[string]string{
		"shared_buffers": "256MB", "max_wal_size": "1GB", "max_connections": "200",
	}}); err != nil {
		return fmt.Errorf("throwaway PostgreSQL: %w", err)
	}
	w.pgs = append(w.pgs, w.pg)
	if w.database, err = w.pg.NewDatabase(ctx); err != nil {
		return err
	}
	if _, err := output(ctx, "", w.programs.newer, "migrate", "--database-url", w.database); err != nil {
		return err
	}
	at, err := addrOf(w.database)
	if err != nil {
		return err
	}
	if w.dbLink, err = newLink(at); err != nil {
		return err
	}
	for _, name := range []string{"ingest", "scheduler-a", "scheduler-b", "supervisor-a", "supervisor-b"} {
		if err := w.openRole(name); err != nil {
			return err
		}
	}
	return nil
}

// openNATS starts one server, or three that are one.
func (w *world) openNATS(ctx context.Context) error {
	if w.stage.topology == single {
		var err error
		if w.natsDisk, _, err = w.disk("nats", func() ([]int, error) { return w.nats[0].pids(), nil }); err != nil {
			return err
		}
		return w.openNATSNodes(ctx, 1)
	}
	return w.openNATSNodes(ctx, 3)
}

func (w *world) openNATSNodes(ctx context.Context, n int) error {
	ports, err := freeport.Find(2 * n)
	if err != nil {
		return err
	}
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", ports[n+i]))
		w.natsHosts = append(w.natsHosts, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	w.natsURL = as(userLoad, w.natsHosts...)
	for i := range n {
		c := &natsConf{Dir: filepath.Join(w.dir, "nats"), Port: ports[i], Name: "nats"}
		if n > 1 {
			c.Name = fmt.Sprintf("nats-%d", i+1)
			c.Dir = filepath.Join(w.dir, c.Name)
			c.Cluster, c.Routes = ports[n+i], routes
		}
		if err := c.write(w.dir); err != nil {
			return err
		}
		p, err := w.newProcess(c.Name, "", w.programs.nats, "-c", c.path)
		if err != nil {
			return err
		}
		w.nats, w.natsConf = append(w.nats, p), c
		if err := p.start(); err != nil {
			return err
		}
	}
	for _, port := range ports[:n] {
		if err := awaitPort(ctx, port); err != nil {
			return err
		}
	}
	return nil
}

// awaitPort waits until a server listens on the port.
func awaitPort(ctx context.Context, port int) error {
	limit := time.Now().Add(readyMax)
	for {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(limit) {
			return fmt.Errorf("port %d: no listener after %v: %w", port, readyMax, err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pgProcesses are the server's: what a limit is set on.
func (w *world) pgProcesses() ([]int, error) {
	if !w.pg.Running() {
		return nil, nil
	}
	pid, err := w.pg.PID()
	if err != nil {
		return nil, err
	}
	return procfs.Family(pid), nil
}
