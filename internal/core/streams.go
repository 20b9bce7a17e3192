package core

import "strings"

// movedStreams tells which streams are not the ones that a partition's cursors belong to:
// those are the stored ones, the others a claim has. See [Claim.Stream].
func movedStreams(stored, streams string) (tasks, control bool) {
	wasTasks, wasControl, _ := strings.Cut(stored, "/")
	nowTasks, nowControl, _ := strings.Cut(streams, "/")
	return wasTasks != nowTasks, wasControl != nowControl
}
