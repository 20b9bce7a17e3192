// Mutants is the test of the tests: each mutant is a deliberate fault of one
// line in the core, a role or an adapter, and the tests named beside it must
// fail with it. A mutant that survives is a check that is missing.
//
// Nothing in the tree is touched: the compiler is given the changed copy in an
// overlay. A mutant that does not build, or whose text is no longer in its file,
// is an error of the list and not a catch.
//
//	go -C bench run ./mutants                 all of them; the last line counts
//	go -C bench run ./mutants -run undo -j 1  some of them
//	go -C bench run ./mutants -list           what there is
//	go -C bench run ./mutants -sim -table     and what the simulator notices, as a table
package main
