package compose

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// unconfined is what a service may do besides, each for its reason; the rest of the rule holds for it.
var unconfined = map[string]string{
	"crdb": "its entry point writes beside the program", "crdb-1": "as crdb", "crdb-2": "as crdb", "crdb-3": "as crdb",
}

// TestConfined: every container of compose.yaml, whatever the profile, has no capability and gains none, and writes to its
// volumes and to memory alone.
//
// covers: P23
func TestConfined(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "compose.yaml")}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) < 20 {
		t.Fatalf("%d services", len(project.Services))
	}
	for _, name := range slices.Sorted(maps.Keys(project.Services)) {
		s := project.Services[name]
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged {
			t.Errorf("%s: capabilities dropped %v, added %v, privileged %v", name, s.CapDrop, s.CapAdd, s.Privileged)
		}
		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: it may gain privileges: %v", name, s.SecurityOpt)
		}
		if s.ReadOnly == (unconfined[name] != "") {
			t.Errorf("%s: read_only is %v", name, s.ReadOnly)
		}
	}
	for _, name := range []string{"postgres", "postgres-1", "postgres-2", "postgres-3"} {
		if user := project.Services[name].User; user != "postgres" {
			t.Errorf("%s: runs as %q", name, user)
		}
	}
}
