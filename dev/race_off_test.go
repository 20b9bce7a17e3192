//go:build !race

package dev_test

const raceDetector = false
