//go:build !unix

package httpagent

import "time"

// used is not known here.
func used() time.Duration { return 0 }
