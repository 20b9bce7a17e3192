// Package schedules carries schedules out while this process leads: what has come due is handed to the request endpoint,
// under an id that is made of the schedule's name and the instant of the run. Who submits a run again, after a kill between
// submission and write or beside another leader, submits the same task. What has become of a run is written after it.
package schedules
