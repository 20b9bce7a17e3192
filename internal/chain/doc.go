// Package chain is the proof of the journal: what is hashed of each commit, how the links of
// a partition follow each other, heads that are signed, and the check of all that against
// what a database holds.
//
// A commit adds one link to the chain of each partition in which it writes a task. A link
// names every row that the commit wrote, with a digest of its values ([Hasher.Row]), and its
// hash covers that and the hash before. So a row proves itself
// against its link, a link against the next one, and the last link against a head that is
// kept elsewhere. What retention removes leaves its digest behind until all that a link
// names is forgotten; then the link goes too, and what still lives of it is named again by a
// later link, which also says so ([Content.Trim]).
//
// The package knows neither SQL nor NATS. docs/decisions/024-chain.md has the reasons.
package chain
