package ingest_test

import (
	_ "duly.dev/duly/dev"
	_ "duly.dev/duly/ingest"
	_ "duly.dev/duly/supervisor" // breach: role ingest imports role supervisor
)
