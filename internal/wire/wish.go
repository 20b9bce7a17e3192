package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// keyWishPrefix begins the keys in BucketPartitions of what operators want of a partition.
const keyWishPrefix = "wish."

// WishesPattern selects the keys of all partitions.
const WishesPattern = keyWishPrefix + "*"

// WishKey is the key in BucketPartitions of where operators want a partition to be.
func WishKey(partition int) string { return keyWishPrefix + strconv.Itoa(partition) }

// IsWishKey reports whether a key of BucketPartitions is one of WishKey.
func IsWishKey(key string) bool { return strings.HasPrefix(key, keyWishPrefix) }

// wishJSON is its value.
type wishJSON struct {
	V     int       `json:"v"`
	Node  string    `json:"node,omitempty"`
	Avoid string    `json:"avoid,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// AppendWish appends the value of a wish's key.
func AppendWish(dst []byte, w *core.Wish) []byte {
	j := wishJSON{V: Version, Node: w.Node, Avoid: w.Avoid}
	if w.Until != 0 {
		j.Until = w.Until.Time()
	}
	data, err := json.Marshal(j)
	if err != nil { // a time of a year with five digits
		return dst
	}
	return append(dst, data...)
}

// DecodeWish reads a key of WishesPattern and its value. Errors wrap ErrUndecodable.
func DecodeWish(key string, data []byte) (core.Wish, error) {
	number, found := strings.CutPrefix(key, keyWishPrefix)
	partition, err := strconv.Atoi(number)
	if !found || err != nil || WishKey(partition) != key || partition < 0 {
		return core.Wish{}, fmt.Errorf("%w: key %s is of no partition", ErrUndecodable, Short(key))
	}
	var j wishJSON
	if err := decodeOf(fmt.Sprintf("where partition %d is to be", partition), data, &j, &j.V); err != nil {
		return core.Wish{}, err
	}
	w := core.Wish{Partition: partition, Node: j.Node, Avoid: j.Avoid}
	if !j.Until.IsZero() {
		w.Until = core.InstantOf(j.Until)
	}
	return w, nil
}
