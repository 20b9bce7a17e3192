//go:build !race

package bus

// raceEnabled: the race detector allocates, which spoils counts.
const raceEnabled = false
