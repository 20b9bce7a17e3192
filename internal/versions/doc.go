// Package versions compares versions of a plan: what differs, what tasks would come to under another version, and which of
// them may be moved to it.
package versions
