package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// Settings that cannot be are refused before anything is started, by name.
func TestSettingsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"-scenario peek":                          `scenario "peek"`,
		"-store mysql":                            `store "mysql"`,
		"-wire both":                              `wire "both"`,
		"-rate 200001":                            "rate: 200001, want 0 to 200000",
		"-seconds -1":                             "seconds: -1",
		"-scenario sustained -preload 10":         "preload",
		"-database sqlite:x":                      "only with -nats",
		"-nats nats://x":                          "want -database too",
		"-nats nats://x -database y -profiles z":  "profiles",
		"-nats n -database d -scenario growth":    `scenario "growth": not with -nats`,
		"-nats n -database d -scenario idle":      `scenario "idle": not with -nats`,
		"-nats n -database d -scenario peak left": `argument "left"`,
		"-nats n -database d -shards 1":           "shards, commit-gap: not with -nats",
		"-shards 65":                              "shards: 65, want 0 to 64",
		"-commit-gap 2s":                          "commit-gap: 2s, want 0 to 1s",
		"-queue-for 1m":                           "queue-for: 1m0s, want 1s to 1h0m0s, of spike",
		"-scenario spike -queue-for 2h":           "queue-for: 2h0m0s, want 1s to 1h0m0s, of spike",
		"-scenario beside -pairs 101":             "pairs: 101, want 0 to 100",
		"-scenario beside -questions 1001":        "questions: 1001, want 0 to 1000",
		"-scenario idle-console -tabs -1":         "tabs: -1, want 0 to 1000",
		"-nats n -database d -scenario repairs":   `scenario "repairs": not with -nats`,
	} {
		err := run(context.Background(), strings.Fields(args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("bench %s: error %v, want one that says %q", args, err, want)
		}
	}
}

// The store of a running system is in the URL of its database.
func TestRunningStore(t *testing.T) {
	for url, want := range map[string]string{"sqlite:/a/b": "sqlite", "postgres://u@h/d": "postgres"} {
		s := settings{scenario: "peak", store: "postgres", wire: "single", partitions: 4, nats: "nats://h", database: url}
		if err := s.check(); err != nil || s.store != want {
			t.Errorf("%s: store %s, error %v, want %s", url, s.store, err, want)
		}
	}
}
