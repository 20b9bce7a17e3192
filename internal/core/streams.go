package core

// movedStreams tells which streams are not the ones that a partition's cursors belong to.
// streams is what a claim has, stored what storedStreams made of it then, or what
// versions before 1 wrote; that one knew the task stream only.
func movedStreams(stored, streams string) (tasks, control bool) {
	nowTasks, rest, two := cutSlash(streams)
	if !two { // one name for both
		return stored != streams, stored != streams
	}
	nowControl, former, _ := cutSlash(rest)
	wasTasks, wasControl, both := cutSlash(stored)
	if !both && former != "" && stored == former {
		return false, false
	}
	return wasTasks != nowTasks, wasControl != nowControl
}

// storedStreams is the name of the streams as the store keeps it.
func storedStreams(streams string) string {
	tasks, rest, both := cutSlash(streams)
	if !both {
		return tasks
	}
	control, _, _ := cutSlash(rest)
	return tasks + "/" + control
}

// cutSlash is the text before the first slash and after it, and whether there is one.
func cutSlash(s string) (before, after string, found bool) {
	for i := range len(s) {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
