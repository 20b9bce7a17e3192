package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Faults of what surrounds the processes: their credentials and rights, their clocks, and
// others who use the same servers.

// refuseCredentials changes Duly's password at the NATS server, as a rotation does that
// reaches the server before the nodes, and back.
func refuseCredentials(ctx context.Context, w *world, in *injection) error {
	in.on = "user " + userDuly
	err := errors.Join(w.reload(func(c *natsConf) { c.Rotated = true }), pause(ctx, in.hold))
	return errors.Join(err, w.reload(func(c *natsConf) { c.Rotated = false }))
}

// denyAgents takes the right to listen to commands from the agents' user, and gives it back.
func denyAgents(ctx context.Context, w *world, in *injection) error {
	in.on = "user " + userAgents
	err := errors.Join(w.reload(func(c *natsConf) { c.Deaf = true }), pause(ctx, in.hold))
	return errors.Join(err, w.reload(func(c *natsConf) { c.Deaf = false }))
}

// foreignMax is how long a node of another installation may take to refuse.
const foreignMax = 30 * time.Second

// secondInstallation starts a node with a database of its own on the same NATS. It must refuse,
// naming both.
func secondInstallation(ctx context.Context, w *world, in *injection) error {
	in.on = "another database"
	url, err := w.pg.NewDatabase(ctx)
	if err != nil {
		return err
	}
	if _, err := output(ctx, "", w.programs.newer, "migrate", "--database-url", url); err != nil {
		return err
	}
	var ids [2]string
	own := w.database
	for i, of := range []string{own, url} {
		w.database = of
		err = errors.Join(err, w.ask(ctx, "SELECT id FROM installation", &ids[i]))
	}
	if w.database = own; err != nil {
		return err
	}
	in.begins()
	bounded, cancel := context.WithTimeout(ctx, foreignMax)
	defer cancel()
	cmd := exec.CommandContext(bounded, w.programs.newer, "serve", "--node-name", "foreign", "--nats-url", as(userDuly, w.natsHosts...),
		"--database-url", url, "--http-addr", "", "--partitions", fmt.Sprint(partitions))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said, err := cmd.CombinedOutput()
	at := filepath.Join(w.dir, "foreign.txt")
	if werr := os.WriteFile(at, said, 0o600); werr != nil {
		return fmt.Errorf("what the foreign node said: %w", werr)
	}
	switch {
	case err == nil || bounded.Err() != nil:
		in.missed = append(in.missed, "a node of another installation runs")
	case !strings.Contains(string(said), ids[0]) || !strings.Contains(string(said), ids[1]):
		in.missed = append(in.missed, fmt.Sprintf("the refusal does not name %s and %s: see %s", ids[0], ids[1], at))
	}
	return nil
}

// clockOff is how wrong a wrong clock is.
const clockOff = 90 * time.Second

// wrongClock runs one scheduler with a clock that is ahead or behind. It must undo nothing for
// that.
func wrongClock(ctx context.Context, w *world, in *injection) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	off := clockOff
	if in.pick%2 == 0 {
		off = -off
	}
	p := one(in, w.schedulers())
	in.on = fmt.Sprintf("%s %v", p.name, off)
	right := p.args
	if err := p.end(syscall.SIGTERM); err != nil {
		return err
	}
	p.args = slices.Concat([]string{self, partClock, off.String()}, right[2:])
	in.begins()
	if err := errors.Join(p.start(), pause(ctx, in.hold)); err != nil {
		return err
	}
	undone, err := w.undoneSince(ctx, in.at)
	if undone != "" {
		in.missed = append(in.missed, undone)
	}
	err = errors.Join(err, p.end(syscall.SIGTERM))
	p.args = right
	return errors.Join(err, p.start())
}
