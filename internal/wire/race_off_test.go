//go:build !race

package wire

// raceEnabled: the race detector allocates, which spoils counts.
const raceEnabled = false
