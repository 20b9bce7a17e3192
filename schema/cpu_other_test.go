//go:build !unix

package schema_test

import "time"

// selfCPU is not to be had here.
func selfCPU() time.Duration { return 0 }
