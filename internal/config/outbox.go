package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Relayed are the outboxes that a node with the role ingest relays.
type Relayed struct {
	Outbox         []string      `name:"outbox" env:"DULY_OUTBOX" sep:" " help:"Databases whose table duly_outbox this node relays, with the role ingest: name=postgres://…, or database for Duly's own; several with spaces between them. All nodes with that role may have the same."`
	OutboxInterval time.Duration `name:"outbox-interval" env:"DULY_OUTBOX_INTERVAL" default:"250ms" help:"How often a node looks into an outbox that was empty: so long, at most, a submission waits there. 0: the default."`
}

// outboxOwn is the name of the outbox in Duly's own database.
const outboxOwn = "database"

// Limits of outboxes.
const (
	outboxesMax       = 16
	outboxIntervalMin = 10 * time.Millisecond
	outboxIntervalMax = time.Minute
)

// Outbox is one outbox to relay.
type Outbox struct {
	Name string
	URL  string // of its database
}

// Outboxes are the outboxes of the settings. Error: one that cannot be, by its number and without its URL, which may have a
// password.
func (c *Config) Outboxes() ([]Outbox, error) {
	if n := len(c.Outbox); n > outboxesMax {
		return nil, fmt.Errorf("outbox: %d given, want at most %d", n, outboxesMax)
	}
	if c.OutboxInterval != 0 && (c.OutboxInterval < outboxIntervalMin || c.OutboxInterval > outboxIntervalMax) {
		return nil, fmt.Errorf("outbox-interval: %v, want 0 (the default), or %v to %v", c.OutboxInterval, outboxIntervalMin, outboxIntervalMax)
	}
	var all []Outbox
	seen := map[string]bool{}
	for i, text := range c.Outbox {
		o := Outbox{Name: outboxOwn, URL: c.DatabaseURL}
		if text != outboxOwn {
			var has bool
			if o.Name, o.URL, has = strings.Cut(text, "="); !has || strings.Contains(o.Name, ":") {
				return nil, fmt.Errorf("outbox: number %d is not name=postgres://…, nor the word %s", i+1, outboxOwn)
			}
			if err := core.CheckName("outbox", o.Name); err != nil {
				return nil, err
			}
			if o.Name == outboxOwn {
				return nil, fmt.Errorf("outbox: number %d has the name %s, which is that of Duly's own database", i+1, outboxOwn)
			}
		}
		if u, err := url.Parse(o.URL); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return nil, fmt.Errorf("outbox: %s is no database postgres://…: transactions of PostgreSQL or CockroachDB are meant", o.Name)
		}
		if seen[o.Name] {
			return nil, fmt.Errorf("outbox: %s is given twice", o.Name)
		}
		seen[o.Name] = true
		all = append(all, o)
	}
	return all, nil
}
