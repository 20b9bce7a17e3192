// Package schedule says when a task is to be submitted again and again: cron in five fields or an interval, a time zone,
// a beginning and an end, jitter, and what of it has come due or was missed. It is pure: the time arrives as an argument,
// and nothing is read but the time zones of the binary.
//
// A cron line is looked up on the clock on the wall of its zone. A time that this clock skips in spring counts as the
// instant at which it goes on, and what falls on one instant so runs once; of a time that it shows twice in autumn the
// first one counts. An interval counts elapsed time and knows no zone.
package schedule
