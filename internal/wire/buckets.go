package wire

import "strconv"

// BucketNodes holds the leases: a key per live node and one for the leader.
func (n Names) BucketNodes() string { return n.get().upper + "NODES" }

// BucketKeys holds what schedulers share and agents must not read.
func (n Names) BucketKeys() string { return n.get().upper + "KEYS" }

// BucketPartitions holds what is known of each partition's commits outside the database.
func (n Names) BucketPartitions() string { return n.get().upper + "PARTITIONS" }

// KeyReplies is the key in BucketKeys that reply tokens are made with; see NewSigner.
const KeyReplies = "replies"

// Keys of BucketNodes.
const (
	KeyNodePrefix = "node."  // + name of the node
	KeyLeader     = "leader" // the leading supervisor
)

// NodeKey is the lease of a node in BucketNodes.
func NodeKey(node string) string { return KeyNodePrefix + node }

// KeyBeat is the key in BucketNodes of the database in use. It expires like a lease when no node
// lives.
const KeyBeat = "database"

// EvidenceKey is the key of a partition in BucketPartitions. What a former owner knew when
// it lost the partition has a key of its own, so that it does not replace what its
// successor records.
func EvidenceKey(partition int, former bool) string {
	key := strconv.Itoa(partition)
	if former {
		key += ".former"
	}
	return key
}

// EvidenceSubject is the subject of EvidenceKey, for a publish that does not wait.
func (n Names) EvidenceSubject(partition int, former bool) string {
	return "$KV." + n.BucketPartitions() + "." + EvidenceKey(partition, former)
}

// BucketPattern selects the subjects of all keys of a bucket.
func BucketPattern(bucket string) string { return "$KV." + bucket + ".>" }

// BucketStream is the stream that stores a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }
