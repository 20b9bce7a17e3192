// Package sim has tests only, so its comment may stand here.
package sim

import (
	_ "duly.dev/duly/ingest"
	_ "duly.dev/duly/scheduler"
)
