package storetest

import (
	"database/sql"
	"slices"
	"testing"

	"duly.dev/duly/schema"
)

// Open gives a migrated store without data of its own, closed when the test
// ends, and its database, to look behind the store.
type Open func(tb testing.TB) (schema.Store, *sql.DB)

// cases are all that a store's users rely on, but for operators.
var cases = []struct {
	name string
	test func(*rig)
}{
	{"migrate twice", testMigrateTwice},
	{"version", testVersion},
	{"clock", testClock},
	{"partitions are fixed for life", testPartitions},
	{"installation", testInstallation},
	{"pairing", testPairing},
	{"renew", testRenew},
	{"take over", testTakeOver},
	{"take over by the ground", testTakeOverByGround},
	{"every field comes back", testRoundTrip},
	{"any value comes back", testRoundTripAny},
	{"a live task equals its replay", testReplay},
	{"empty batch", testEmptyBatch},
	{"write without its partition", testWriteWithoutPartition},
	{"cursors alone", testCursorsAlone},
	{"row of a lower seq", testLowerSeq},
	{"taken id", testTakenID},
	{"taken id within a batch", testTakenWithinBatch},
	{"stale epoch", testStaleEpoch},
	{"stale last commit", testStaleCommit},
	{"stale epoch and taken id", testStaleEpochAndTakenID},
	{"owners by turns", testOwnersByTurns},
	{"owners at once", testOwnersAtOnce},
	{"same batch twice", testSameBatchTwice},
	{"same batch twice with duplicates", testSameDuplicatesTwice},
	{"same batch after a takeover", testSameBatchAfterTakeover},
	{"many births", testManyBirths},
	{"poison", testPoison},
	{"words of people", testWordsOfPeople},
	{"foreign journal row", testForeignRow},
	{"foreign task number", testForeignNumber},
	{"foreign end number", testForeignEndNumber},
	{"load active", testLoadActive},
	{"load by number and id", testLoadByKey},
	{"an owner's reads are fenced", testReadsFenced},
	{"overdue", testOverdue},
	{"waiting", testWaiting},
	{"untold", testUntold},
	{"list", testList},
	{"labels", testLabels},
	{"list by label", testLabelsList},
	{"labels are forgotten with the row", testLabelsForgotten},
	{"flow", testFlow},
	{"signals that are waited for", testSignals},
	{"counts", testCounts},
	{"counts that are cut", testCutCounts},
	{"plans", testPlans},
	{"deprecated", testDeprecated},
	{"view", testView},
	{"view without a plan", testViewWithoutPlan},
	{"existing", testExisting},
	{"purge", testPurge},
	{"purge is fenced", testPurgeFenced},
	{"purge after a takeover", testPurgeAfterTakeover},
	{"purge of what was passed over", testPurgePassedOver},
	{"children", testChildren},
	{"the id of a child", testLongID},
	{"children are listed", testChildrenListed},
	{"tasks of a commit", testFresh},
	{"purge of a family", testPurgeFamily},
	{"purge of a child after its parent", testPurgeAfterParent},
	{"purge of anything", testPurgeOfAnything},
	{"audit", testAudit},
	{"room", testRoom},
}

// transactions are the cases whose outcome depends on how a transaction ends and which others it meets.
var transactions = []string{
	"partitions are fixed for life", "installation", "pairing", "renew", "take over", "take over by the ground", "empty batch", "cursors alone",
	"taken id", "taken id within a batch", "stale epoch", "stale last commit", "stale epoch and taken id", "owners by turns", "owners at once",
	"same batch twice", "same batch twice with duplicates", "same batch after a takeover", "many births", "poison", "plans", "purge", "purge is fenced",
	"purge after a takeover", "purge of a family", "audit",
}

// Run holds a store to all that its users rely on, except for some of it by name.
func Run(t *testing.T, open Open, except ...string) {
	run(t, open, func(name string) bool { return !slices.Contains(except, name) })
}

// RunTransactions is the part of Run whose outcome depends on how a transaction ends and which others it meets: for a
// store that differs in its transactions alone from one that Run holds.
func RunTransactions(t *testing.T, open Open) {
	run(t, open, func(name string) bool { return slices.Contains(transactions, name) })
}

func run(t *testing.T, open Open, runs func(name string) bool) {
	for _, c := range cases {
		if !runs(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s, db := open(t)
			c.test(newRig(t, s, db))
		})
	}
}
