package wire

import "strings"

// keyRemovedPrefix begins the keys in BucketPartitions of what has been removed from streams.
const keyRemovedPrefix = "removed."

// RemovedKey is the key in BucketPartitions of how far Duly has removed what a stream held.
func RemovedKey(stream string) string { return keyRemovedPrefix + stream }

// IsRemovedKey reports whether a key of BucketPartitions is one of RemovedKey.
func IsRemovedKey(key string) bool { return strings.HasPrefix(key, keyRemovedPrefix) }
