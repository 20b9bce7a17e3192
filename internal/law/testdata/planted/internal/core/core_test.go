package core

import (
	_ "os"

	_ "pgregory.net/rapid"
)
