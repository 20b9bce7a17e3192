// Package egress is what holds for requests that leave: which addresses they may reach, and that what is meant for one
// host goes to no other.
package egress
