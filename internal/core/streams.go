package core

// movedStreams tells which streams are not the ones that a partition's cursors belong to:
// those are the stored ones, the others a claim has. See [Claim.Stream].
func movedStreams(stored, streams string) (tasks, control bool) {
	wasTasks, wasControl := cutSlash(stored)
	nowTasks, nowControl := cutSlash(streams)
	return wasTasks != nowTasks, wasControl != nowControl
}

// cutSlash is the text before the first slash and after it.
func cutSlash(s string) (before, after string) {
	for i := range len(s) {
		if s[i] == '/' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
