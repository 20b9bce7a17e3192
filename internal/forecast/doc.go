// Package forecast learns how long the steps of tasks take, and says from that how likely a task is to make its deadline.
//
// A [Book] keeps, for each step of each plan version, how long the step waits for room at its agent and how long it runs,
// attempts included, as two histograms whose older observations count less; and the same for each agent, for steps that
// have not been seen often enough. What it knows is bounded, can be stored, and adds up over nodes.
//
// A question is answered by a fixed number of samples: for each, every open step draws one of its durations, and the
// finish of the task is found along the plan's graph. The draws are the same for every question (a Latin hypercube), so
// that the same history and the same question have the same answer.
//
// The package has no clock: every instant is handed in. A Book is safe for concurrent use.
package forecast
