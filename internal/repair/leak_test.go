package repair

import (
	"testing"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/pgtestdb"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtestdb.Stopping{M: m}) }
