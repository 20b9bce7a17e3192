package scheduler // breach: has no package comment
