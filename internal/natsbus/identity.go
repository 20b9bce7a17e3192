package natsbus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Identity is what the reader of a stream remembers of it, to notice when it is another one. The zero value is that of the
// stream which Check finds first.
type Identity struct{ id string }

// IdentityOf is the identity of a stream.
func IdentityOf(info *jetstream.StreamInfo) Identity { return Identity{streamID(info)} }

// Check reports that a stream is another one than before, or ends before the position that was read last: its reader would
// hear nothing until it has grown as far. first is the position at which it begins, 1 at least; 0: the server did not answer,
// which is no error: ask again later.
func (i *Identity) Check(ctx context.Context, js jetstream.JetStream, stream string, last uint64) (first uint64, err error) {
	found, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, nil
	}
	is := found.CachedInfo()
	first = max(1, is.State.FirstSeq)
	switch id := streamID(is); {
	case i.id == "":
		i.id = id
	case id != i.id:
		return first, fmt.Errorf("%w: it is %s, was %s", errOtherStream, id, i.id)
	}
	if is.State.LastSeq < last {
		return first, fmt.Errorf("%w: it ends at %d, %d was read", ErrRewound, is.State.LastSeq, last)
	}
	return first, nil
}
