// Command no_want does not say what to expect.
package main

func main() { absent() }
