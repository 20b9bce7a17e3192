package compose

import (
	"slices"

	"duly.dev/duly/internal/node"
)

// contract is what the code says about itself.
type contract struct {
	envs        []string
	flags       []string
	roles       []string
	healthPaths []string
	port        uint32
}

// fromCode reads the contract off the wiring package.
func fromCode() contract {
	c := contract{
		roles:       slices.Clone(node.Roles),
		healthPaths: slices.Clone(node.HealthPaths),
		port:        node.HTTPPort,
	}
	for _, setting := range node.Settings() {
		if setting.Env != "" {
			c.envs = append(c.envs, setting.Env)
		}
		if setting.Flag != "" {
			c.flags = append(c.flags, setting.Flag)
		}
	}
	return c
}
