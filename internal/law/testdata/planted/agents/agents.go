// This comment is not about package agents.

// Agents has the wrong form.
package agents // breach: has no package comment
