// Package elsewhere has no place in the map.
package elsewhere // breach: is not in the law
