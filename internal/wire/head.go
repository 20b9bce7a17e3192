package wire

import (
	"strconv"
	"strings"
)

// keyHeadPrefix begins the keys in BucketPartitions of the heads of chains.
const keyHeadPrefix = "head."

// HeadKey is the key in BucketPartitions of the newest head of a partition's chain.
func HeadKey(partition int) string { return keyHeadPrefix + strconv.Itoa(partition) }

// IsHeadKey reports whether a key of BucketPartitions is one of HeadKey.
func IsHeadKey(key string) bool { return strings.HasPrefix(key, keyHeadPrefix) }

// HeadSubject is the subject of HeadKey, for a publish that does not wait.
func (n Names) HeadSubject(partition int) string {
	return "$KV." + n.BucketPartitions() + "." + HeadKey(partition)
}
