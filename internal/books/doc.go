// Package books compares the journal with the books of the services: it asks each agent that keeps books which effects
// stand, and names the three kinds of ghost: an effect of a task that was undone, a processed task without its effect,
// and an effect that was made twice.
package books
