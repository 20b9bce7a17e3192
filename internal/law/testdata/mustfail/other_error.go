// want: undefined: absent

// Command other_error fails, for another reason.
package main

func main() { elsewhere() }
