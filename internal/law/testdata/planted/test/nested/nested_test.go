package nested // breach: has no package comment

import (
	_ "database/sql"
	"time"

	_ "duly.dev/duly/internal/core"
)

func wait() {
	time.Sleep(1) // breach: time.Sleep
}
