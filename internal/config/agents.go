package config

import (
	"errors"
	"slices"

	"duly.dev/duly/internal/core"
)

// RoleAgents is the role of a process that serves agents made by a file. It is none of [Roles], for it needs neither a
// database nor the rights of a node, and runs alone or beside them.
const RoleAgents = "agents"

// HTTPAgents are agents of HTTP services.
type HTTPAgents struct {
	Agents string `name:"agents" env:"DULY_AGENTS" help:"File with the agents of HTTP services that this process serves, with the role agents, which needs no database when it is the only one."`

	AgentsVariant string `name:"agents-variant" env:"DULY_AGENTS_VARIANT" help:"These agents are a variant, such as canary: they take the share of commands that mappings of NATS send to duly.do.<agent>-<variant>, see nats-mappings."`
}

func (c *Config) validateAgents() error {
	switch has := c.Has(RoleAgents); {
	case has && c.Agents == "":
		return errors.New("agents: not given, but roles has agents: which file are they in?")
	case !has && c.Agents != "":
		return errors.New("agents: given, but roles has no agents")
	case !has && c.AgentsVariant != "":
		return errors.New("agents-variant: given, but roles has no agents")
	case c.AgentsVariant != "":
		return core.CheckName("agents-variant", c.AgentsVariant)
	}
	return nil
}

// OnlyAgents reports whether the process is no node: it has the role agents alone.
func (c *Config) OnlyAgents() bool { return len(c.Roles) == 1 && c.Has(RoleAgents) }

// WithoutAgents is the configuration of the node beside the role agents.
func (c Config) WithoutAgents() Config {
	c.Roles = slices.DeleteFunc(slices.Clone(c.Roles), func(role string) bool { return role == RoleAgents })
	c.Agents, c.AgentsVariant = "", ""
	return c
}
