//go:build !unix

// Command testrun runs the tests of this repository, which take a Unix system.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "testrun: the tests take a Unix system")
	os.Exit(1)
}
