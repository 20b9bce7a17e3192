// want: undefined: absent

// Command refused is what the check is for.
package main

func main() { absent() }
