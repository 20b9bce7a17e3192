package harness

import (
	"testing"

	"duly.dev/duly/internal/localpg"
)

func losingCluster(t *testing.T) string {
	t.Helper()
	c, err := localpg.Start(localpg.Options{FsyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c.URL("postgres")
}
