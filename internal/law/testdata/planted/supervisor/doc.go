// Package supervisor sleeps in its tests.
package supervisor
