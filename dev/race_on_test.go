//go:build race

package dev_test

// raceDetector: it takes 8,128 goroutines at most, and a connection has two.
const raceDetector = true
