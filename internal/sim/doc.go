// Package sim runs the real handlers of all roles in one goroutine, in a world
// with a clock of its own and faults drawn from a seed.
//
// [MemStore] is the state store in memory, the reference of what the SQL must
// mean. [World] is everything else: streams, consumers, agents and their books,
// a network that loses, doubles and delays. A run is a storm, in which faults
// are drawn, and then a calm, in which every accepted task must end. The same
// seed gives the same run.
package sim
