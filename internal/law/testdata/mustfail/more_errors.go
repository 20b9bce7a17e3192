// want: undefined: absent

// Command more_errors has an error too many.
package main

func main() { absent(); elsewhere() }
