package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// Fair is how tasks that wait for an agent share it.
type Fair struct {
	TenantLabel string   `name:"tenant-label" env:"DULY_TENANT_LABEL" default:"tenant" help:"Key of the label that names the tenant of a task: tenants share agents that are busy, and queues that are long. Empty: all tasks are of one."`
	Weights     []string `name:"weights" env:"DULY_WEIGHTS" help:"Shares of agents that are busy: class:high=16, type:order=4, tenant:acme=2; 1 to 1000, up to 256 of them. Unless said: high 16, normal 4, low 1, every type and tenant 1. The same on all nodes."`
}

// Limits of Fair.
const (
	weightsMax = 256
	weightMost = 1000
)

// Shares are the weights that are given; what is not has 0 or is not there.
type Shares struct {
	Classes        [core.Classes]int
	Types, Tenants map[string]int
}

// Shares reads Weights. Errors name the setting, the value and what is allowed.
func (f *Fair) Shares() (Shares, error) {
	s := Shares{Types: map[string]int{}, Tenants: map[string]int{}}
	if len(f.Weights) > weightsMax {
		return s, fmt.Errorf("weights: %d given, want at most %d", len(f.Weights), weightsMax)
	}
	for _, text := range f.Weights {
		if err := s.add(text); err != nil {
			return s, fmt.Errorf("weights: %s: %w", core.QuoteShort(text), err)
		}
	}
	return s, nil
}

func (s *Shares) add(text string) error {
	of, rest, _ := strings.Cut(text, ":")
	last := strings.LastIndexByte(rest, '=')
	if last < 0 {
		return errors.New("want class:NAME=WEIGHT, type:NAME=WEIGHT or tenant:NAME=WEIGHT")
	}
	name := rest[:last]
	weight, err := strconv.Atoi(rest[last+1:])
	if err != nil || weight < 1 || weight > weightMost {
		return fmt.Errorf("weight %s, want 1 to %d", core.QuoteShort(rest[last+1:]), weightMost)
	}
	switch of {
	case "class":
		class, err := core.ParseClass(name)
		if err != nil {
			return err
		}
		if s.Classes[class] != 0 {
			return fmt.Errorf("class %s is given twice", name)
		}
		s.Classes[class] = weight
		return nil
	case "type":
		return once(s.Types, core.CheckName("type", name), "type", name, weight)
	case "tenant":
		if name != "" { // the tenant of tasks without one
			err = core.CheckLabel(core.Label{Key: "tenant", Value: name})
		}
		return once(s.Tenants, err, "tenant", name, weight)
	}
	return fmt.Errorf("weight of %s, want class, type or tenant", core.QuoteShort(of))
}

// once keeps a weight whose name is right and new.
func once(all map[string]int, err error, of, name string, weight int) error {
	if err != nil {
		return err
	}
	if all[name] != 0 {
		return fmt.Errorf("%s %s is given twice", of, core.QuoteShort(name))
	}
	all[name] = weight
	return nil
}

func (f *Fair) validate() error {
	if f.TenantLabel != "" {
		if err := core.CheckName("tenant-label", f.TenantLabel); err != nil {
			return err
		}
	}
	_, err := f.Shares()
	return err
}
