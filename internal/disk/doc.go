// Package disk says how much room a disk has.
package disk
