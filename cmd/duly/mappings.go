package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// mappingsCmd prints what sends a share of an agent's commands to a variant of it.
type mappingsCmd struct {
	Shares []string `arg:"" name:"shares" help:"Each <agent>=<variant>:<percent>: payment.charge=canary:10."`

	Undo      int    `default:"-1" help:"Percent of the undos that go to the variant; without it, the same share as of the dos."`
	Namespace string `env:"DULY_NAMESPACE" default:"duly" help:"That of the installation."`
}

// share is what one argument says.
type share struct {
	agent, variant string
	percent        int
}

// Run prints the mappings, for an account of nats-server's configuration or its top level.
func (c *mappingsCmd) Run(std streams) error {
	names, err := wire.NewNames(c.Namespace)
	if err != nil {
		return useError{err}
	}
	if c.Undo < -1 || c.Undo > 100 {
		return misuse("undo: %d, want 0 to 100", c.Undo)
	}
	var text strings.Builder
	text.WriteString("mappings {\n")
	seen := map[string]bool{}
	for _, arg := range c.Shares {
		s, err := parseShare(arg)
		if err != nil {
			return useError{err}
		}
		if seen[s.agent] {
			return misuse("%q: agent %s is there twice", arg, s.agent)
		}
		seen[s.agent] = true
		c.write(&text, names, s)
	}
	text.WriteString("}\n")
	_, err = io.WriteString(std.out, text.String())
	return err
}

func parseShare(arg string) (s share, err error) {
	agent, rest, named := strings.Cut(arg, "=")
	variant, percent, weighed := strings.Cut(rest, ":")
	if !named || !weighed {
		return s, fmt.Errorf("%q: want <agent>=<variant>:<percent>", arg)
	}
	s.agent, s.variant = agent, variant
	if err := core.CheckAgent(agent); err != nil {
		return s, fmt.Errorf("%q: %w", arg, err)
	}
	if err := core.CheckName("variant", variant); err != nil {
		return s, fmt.Errorf("%q: %w", arg, err)
	}
	if err := core.CheckAgent(wire.VariantOf(agent, variant)); err != nil {
		return s, fmt.Errorf("%q: %w", arg, err)
	}
	if s.percent, err = strconv.Atoi(strings.TrimSuffix(percent, "%")); err != nil || s.percent < 0 || s.percent > 100 {
		return s, fmt.Errorf("%q: percent %q, want 0 to 100", arg, percent)
	}
	return s, nil
}

// write writes the mappings of one agent: commands, batches of them, and probes.
func (c *mappingsCmd) write(text *strings.Builder, n wire.Names, s share) {
	undo := s.percent
	if c.Undo >= 0 {
		undo = c.Undo
	}
	at := wire.VariantOf(s.agent, s.variant)
	for _, m := range []struct {
		from, to string
		percent  int
	}{
		{n.CommandSubject(s.agent, false), n.CommandSubject(at, false), s.percent},
		{n.BatchSubject(s.agent, false), n.BatchSubject(at, false), s.percent},
		{n.CommandSubject(s.agent, true), n.CommandSubject(at, true), undo},
		{n.BatchSubject(s.agent, true), n.BatchSubject(at, true), undo},
		{n.SubjectProbe(s.agent), n.SubjectProbe(at), s.percent},
	} {
		fmt.Fprintf(text, "  %q: [\n    {destination: %q, weight: %d%%}\n    {destination: %q, weight: %d%%}\n  ]\n", m.from, m.from, 100-m.percent, m.to, m.percent)
	}
}
