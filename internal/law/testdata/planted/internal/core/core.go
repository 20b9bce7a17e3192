// Package core reaches beyond its three packages.
package core

import (
	_ "errors"
	_ "fmt"
	_ "os" // breach: it may import cmp, crypto/sha256, errors, fmt, iter, math, math/bits, slices, time only
	_ "time"

	_ "duly.dev/duly/internal/natsbus" // breach: internal/core may not import internal/natsbus
	_ "example.org/other"              // breach: it may import cmp, crypto/sha256, errors, fmt, iter, math, math/bits, slices, time only
)
