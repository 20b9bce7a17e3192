package main

// chainMutants are faults of the hash chains and of their check.
var chainMutants = []mutant{
	{
		name: "chain-link-without-the-hash-before", invariant: 11, file: "internal/chain/link.go", in: "schema/sqlite",
		old: "head = append(append(head, linkDomain...), before[:]...)", new: "head = append(head, linkDomain...)",
		fault: "the hash of a link does not cover the one before",
		run:   "^TestSQLiteChained$/^planted_changes_against_heads$",
	},
	{
		name: "chain-row-without-partition", invariant: 11, file: "internal/chain/row.go",
		old: "		if c.Form == Number {\n			h.buf =", new: "		if c.Name == \"partition\" {\n			continue\n		}\n		if c.Form == Number {\n			h.buf =",
		fault: "the digest of a row does not cover its partition",
		run:   "^TestDigestCoversEveryValue$",
	},
	{
		name: "chain-row-without-result", invariant: 11, file: "internal/chain/row.go",
		old: "		if c.Form == Number {\n			h.buf =", new: "		if c.Name == \"result\" {\n			continue\n		}\n		if c.Form == Number {\n			h.buf =",
		fault: "the digest of a row does not cover its result",
		run:   "^TestDigestCoversEveryValue$",
	},
	{
		name: "chain-without-task-rows", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "if !w.Birth && (!w.Row || len(w.Records) == 0) {", new: "if len(w.Records) > 0 {",
		fault: "links do not name rows of tasks",
		run:   "^TestSQLiteChained$/^chain_of_commits$",
	},
	{
		name: "chain-names-duplicates", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "if len(l.All) == 0 || len(duplicates) == 0 {", new: "if len(l.All) >= 0 {",
		fault: "a link names the rows of births that were left out",
		run:   "^TestSQLiteChained$/^chain_and_a_taken_id$",
	},
	{
		name: "chain-goes-on-after-a-gap", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "case epoch != st.Found.Epoch:", new: "case epoch == noEpoch:",
		fault: "a chain does not say that owners between kept none",
		run:   "^TestSQLiteChained$/^chain_with_a_gap$",
	},
	{
		name: "chain-head-moves-when-fenced", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "if slices.Contains(fenced, link.Partition) || b.chains.heads[link.Partition] != l.heads[i] {", new: "if len(fenced) > len(l.All) {",
		fault: "a commit that was fenced moves the end of the chain in memory",
		run:   "^TestSQLiteChained$/^chain_and_a_lost_fence$",
	},
	{
		name: "chain-trims-before-it-is-said", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "case !named:\n		return nil\n", new: "case !named && head.epoch < 0:\n		return nil\n",
		fault: "links are deleted before a commit has named again what lives of them",
		run:   "^TestSQLiteChained$/^links_are_taken$",
	},
	{
		name: "chain-trim-named-by-any-commit", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "if t := l.trims[i]; t != nil {", new: "if t := b.chains.trims[link.Partition]; t != nil {",
		fault: "links are deleted after a commit whose link was made before the trim was planned",
		run:   "^TestSQLiteChained$/^links_are_taken_beside_a_commit$",
	},
	{
		name: "chain-trim-behind-a-large-link", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "		if !first || height == 1 { // what", new: "		size += len(content)\n		if !first || height == 1 { // what",
		fault: "a link that names more than a trim reads keeps all behind it for good",
		run:   "^TestSQLiteChained$/^links_are_taken_behind_a_large_one$",
	},
	{
		name: "chain-trim-forgets-what-lives", invariant: 11, file: "schema/chain.go", in: "schema/sqlite",
		old: "living[e.Number] {", new: "!living[e.Number] {",
		fault: "what lives of old links is not named again",
		run:   "^TestSQLiteChained$/^links_are_taken$",
	},
	{
		name: "chain-sqlite-takes-a-foreign-link", invariant: 4, file: "schema/sqlite/commit.go",
		old: "		WHERE chain.epoch = excluded.epoch AND chain.commit_id = excluded.commit_id`", new: "		WHERE chain.epoch <> -1`",
		fault: "SQLite: a commit overwrites another's link",
		run:   "^TestSQLiteChained$/^chain_with_a_foreign_link$",
	},
	{
		name: "chain-postgres-takes-a-foreign-link", invariant: 4, file: "schema/postgres/commit.go",
		old: "` WHERE c.epoch = excluded.epoch AND c.commit_id = excluded.commit_id RETURNING 1`", new: "` RETURNING 1`",
		fault: "PostgreSQL: a commit overwrites another's link",
		run:   "^TestPostgresChained$/^chain_with_a_foreign_link$",
	},
	{
		name: "verify-takes-any-age-for-retention", invariant: 11, file: "internal/chain/verify.go", in: "schema/sqlite",
		old: "if ok && task.ended != 0 && task.ended < c.detail ||", new: "if ok && task.ended != 0 ||",
		fault: "what goes too early counts as purged by retention",
		run:   "^TestSQLiteChained$/^chain_and_retention$",
	},
	{
		name: "verify-without-the-end", invariant: 11, file: "internal/chain/verify.go", in: "schema/sqlite",
		old: "	if len(heads) > 0 {\n		h := heads[len(heads)-1]", new: "	if len(heads) > len(c.heads) {\n		h := heads[len(heads)-1]",
		fault: "a chain that ends before its head fits",
		run:   "^TestSQLiteChained$/^planted_changes_against_heads$",
	},
	{
		name: "verify-any-signature", invariant: 11, file: "internal/chain/head.go", in: "schema/sqlite",
		old: "if err != nil || !ed25519.Verify(key, h.message(), signature) {", new: "if err != nil || len(signature) == 0 {",
		fault: "a head with any signature is relied on",
		run:   "^TestSQLiteChained$/^planted_changes_against_heads$",
	},
}
