package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/schema"
)

// verifyCmd checks the journal against its chains.
type verifyCmd struct {
	Journal   string   `name:"journal" placeholder:"FILE" help:"Check an export instead of the database; nothing is connected to."`
	Export    string   `name:"export" placeholder:"FILE" help:"Write what there is to check into a new file, and check nothing. It holds inputs and results."`
	Heads     []string `name:"heads" placeholder:"FILE" help:"Hold the chains to the heads in these files, instead of those on NATS. none: to no heads."`
	SaveHeads string   `name:"save-heads" placeholder:"FILE" help:"Append the heads on NATS to a file, and check nothing."`
	Key       string   `name:"key" placeholder:"FILE" help:"Public key (PEM) that heads have to be signed by."`
	Partition int      `name:"partition" default:"-1" help:"Only this partition."`
	From      int64    `name:"from" help:"Only rows of links from this height on. With a range, inserted rows are not looked for."`
	To        int64    `name:"to" help:"Only rows of links up to this height."`
	Output    string   `short:"o" enum:"text,json" default:"text" help:"text or json."`

	config.Config `embed:""`
}

// noHeads is the name of no file of heads.
const noHeads = "none"

// Run checks, and fails where something does not fit.
func (c *verifyCmd) Run(ctx context.Context, std streams) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.SaveHeads != "" {
		return c.saveHeads(ctx, std)
	}
	heads, err := c.heads(ctx)
	if err != nil {
		return err
	}
	source, closeSource, err := c.source(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	switch has := slices.Contains(source.Partitions(), c.Partition); {
	case c.Partition < 0 || has:
	case c.Journal != "":
		return misuse("partition: %d, which is not in %s", c.Partition, c.Journal)
	default:
		return misuse("partition: %d, want one of 0 to %d", c.Partition, len(source.Partitions())-1)
	}
	if c.Export != "" {
		return c.export(ctx, std, source)
	}
	o := node.VerifyOptions(&c.Config)
	o.Partition, o.From, o.To, o.Heads = c.Partition, c.From, c.To, heads
	if c.Key != "" {
		if o.Key, err = node.PublicKey(c.Key); err != nil {
			return misuse("key: %v", err)
		}
	}
	report, err := chain.Verify(ctx, source, o)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if c.Output == "json" {
		err = writeJSON(std.out, report)
	} else {
		printReport(std.out, report)
	}
	if err == nil && !report.Proven() {
		return errUnclean
	}
	return err
}

// check refuses flags that do not go together.
func (c *verifyCmd) check() error {
	switch {
	case c.From < 0 || c.To < 0 || c.To > 0 && c.To < c.From:
		return misuse("from and to: %d and %d, want heights from 1 on, the first not above the second", c.From, c.To)
	case c.Partition < -1:
		return misuse("partition: %d, want 0 or more", c.Partition)
	case c.Export != "" && (c.Journal != "" || c.SaveHeads != "" || c.From > 0 || c.To > 0):
		return misuse("export: goes with the database and --partition alone")
	case c.SaveHeads != "" && (c.Journal != "" || len(c.Heads) > 0):
		return misuse("save-heads: goes without --journal and --heads: it takes the heads on NATS")
	}
	return nil
}

// heads are those of the files, or of NATS.
func (c *verifyCmd) heads(ctx context.Context) (all []chain.Head, err error) {
	switch {
	case c.Export != "":
		return nil, nil
	case len(c.Heads) == 1 && c.Heads[0] == noHeads:
		return nil, nil
	case len(c.Heads) == 0 && c.Journal != "":
		return nil, misuse("heads: none given, and an export has none: give --heads FILE, or --heads none")
	case len(c.Heads) == 0:
		if all, err = node.Heads(ctx, c.Config); err != nil {
			return nil, fmt.Errorf("heads: %w", err)
		}
		return all, nil
	}
	for _, path := range c.Heads {
		f, err := os.Open(path)
		if err != nil {
			return nil, misuse("heads: %v", err)
		}
		some, err := chain.ReadHeads(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("heads: file %s: %w", path, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// source is the database, or an export.
func (c *verifyCmd) source(ctx context.Context) (chain.Source, func() error, error) {
	if c.Journal == "" {
		proof, err := node.OpenProof(ctx, c.Config)
		if err != nil {
			return nil, nil, err
		}
		return proof, proof.Close, nil
	}
	f, err := os.Open(c.Journal)
	if err != nil {
		return nil, nil, misuse("journal: %v", err)
	}
	source, err := chain.OpenFile(ctx, f, schema.Columns().Chained())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("journal: file %s: %w", c.Journal, err), f.Close())
	}
	return source, f.Close, nil
}

// export writes the source into a new file.
func (c *verifyCmd) export(ctx context.Context, std streams, source chain.Source) error {
	f, err := os.OpenFile(c.Export, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	err = chain.Export(ctx, source, c.Partition, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	_, err = fmt.Fprintf(std.out, "wrote %s\n", c.Export)
	return err
}

// saveHeads appends the heads on NATS to a file.
func (c *verifyCmd) saveHeads(ctx context.Context, std streams) error {
	heads, err := node.Heads(ctx, c.Config)
	if err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	f, err := os.OpenFile(c.SaveHeads, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("save-heads: %w", err)
	}
	err = chain.AppendHeads(f, heads)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save-heads: %w", err)
	}
	_, err = fmt.Fprintf(std.out, "%d heads appended to %s\n", len(heads), c.SaveHeads)
	return err
}

// printReport is a report for people: its verdict first, then what does not fit in order.
func printReport(w io.Writer, r *chain.Report) {
	fmt.Fprintln(w, r.Sentence())
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(w, "  partition %d: %s\n", f.Partition, show.Clean(f.Text))
	}
	if r.More > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.More)
	}
	day := func(at core.Instant) string { return at.Time().UTC().Format(time.RFC3339) }
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if p.Last == 0 {
			fmt.Fprintf(w, "partition %d: no chain\n", p.Partition)
			continue
		}
		fmt.Fprintf(w, "partition %d: links %d to %d, the first of %s; fits: %s", p.Partition, p.First, p.Last, day(p.Since), say.Count(int64(p.Rows+p.Tasks), "row"))
		if p.Purged > 0 {
			fmt.Fprintf(w, ", %d purged by retention", p.Purged)
		}
		if p.Before > 0 {
			fmt.Fprintf(w, ", %d older than the chain or written while none was kept", p.Before)
		}
		if p.HeadAt != 0 {
			fmt.Fprintf(w, "; head of %s fits", day(p.HeadAt))
		}
		fmt.Fprintln(w)
	}
}
