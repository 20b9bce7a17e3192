package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"duly.dev/duly/internal/freeport"
)

// Copy makes another cluster of what this one holds now: a physical backup, taken
// while it works. The copy does not run until its Restart, and has an address of its
// own. A standby begins to follow this cluster then, asynchronously, until Promote.
func (c *Cluster) Copy(ctx context.Context, standby bool) (*Cluster, error) {
	user, err := serverUser()
	if err != nil {
		return nil, err
	}
	to := &Cluster{bin: c.bin, options: c.options}
	to.databases.Store(c.databases.Load())
	if to.dir, err = makeDir(c.options.Dir, "dulypg", user); err != nil {
		return nil, err
	}
	if to.sockets, err = makeSocketDir(user); err != nil {
		return nil, errors.Join(err, os.RemoveAll(to.dir))
	}
	if to.guard, err = watch(user, to.dir, to.sockets); err != nil {
		return nil, errors.Join(err, os.RemoveAll(to.dir), os.RemoveAll(to.sockets))
	}
	ports, err := freeport.Find(1)
	if err == nil {
		to.port = ports[0]
		err = to.fill(ctx, c, standby)
	}
	if err != nil {
		return nil, errors.Join(err, to.Stop())
	}
	return to, nil
}

// fill copies the data of another cluster.
func (c *Cluster) fill(ctx context.Context, from *Cluster, standby bool) error {
	args := []string{"-D", c.data(), "-d", from.URL("postgres"), "--wal-method=stream", "--checkpoint=fast", "--no-sync"}
	if standby {
		args = append(args, "--write-recovery-conf")
	}
	return c.program(ctx, "pg_basebackup", args...)
}

// Promote makes a primary of a standby and waits until it is one.
func (c *Cluster) Promote(ctx context.Context) error {
	return c.program(ctx, "pg_ctl", "promote", "-D", c.data(), "--wait")
}

// Configure sets a setting of a running server for all that connect and all that are
// connected. An empty value is one, too.
func (c *Cluster) Configure(ctx context.Context, name, value string) error {
	// Neither may stand in one transaction with anything else.
	if err := c.execute(ctx, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value)); err != nil {
		return err
	}
	return c.execute(ctx, "SELECT pg_reload_conf()")
}

// program runs one of the server's programs as the server's user.
func (c *Cluster) program(ctx context.Context, name string, args ...string) error {
	cmd := c.guard.command(c.dir, c.bin.path(name), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// execute runs one statement as the superuser.
func (c *Cluster) execute(ctx context.Context, statement string) error {
	cmd := exec.CommandContext(ctx, c.bin.path("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", c.URL("postgres"), "-c", statement)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", statement, err, bytes.TrimSpace(out))
	}
	return nil
}
