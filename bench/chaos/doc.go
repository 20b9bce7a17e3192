// Command chaos kills what Duly is made of while it works, and closes the books
// afterwards: real processes on loopback under a steady load of deliveries, one
// fault after the other drawn from a printed seed. See bench/chaos/README.md.
package main
