package compose

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// contract is what the code says about itself.
type contract struct {
	envs        []string
	droneEnvs   []string
	flags       []string
	roles       []string
	healthPaths []string
	port        uint32
}

// fromCode reads the contract off the wiring package.
func fromCode() contract {
	c := contract{
		roles:       slices.Clone(config.Roles),
		healthPaths: slices.Clone(node.HealthPaths),
		port:        config.HTTPPort,
	}
	for _, setting := range config.Settings() {
		if setting.Env != "" {
			c.envs = append(c.envs, setting.Env)
		}
		if setting.Flag != "" {
			c.flags = append(c.flags, setting.Flag)
		}
	}
	// The page's settings are in a program, which cannot be imported.
	if source, err := os.ReadFile(filepath.Join(root, "examples/drone/cmd/drone/main.go")); err == nil {
		for _, match := range envTag.FindAllStringSubmatch(string(source), -1) {
			c.droneEnvs = append(c.droneEnvs, strings.Split(match[1], ",")...)
		}
	}
	return c
}

var envTag = regexp.MustCompile(`\benv:"([A-Z_,]+)"`)
