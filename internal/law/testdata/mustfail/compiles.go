// want: undefined: absent

// Command compiles should not.
package main

func main() {}
