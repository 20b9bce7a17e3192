package duly

import "duly.dev/duly/internal/wire"

// ParseStatus reads one message sent to the subject of [ReplyTo]. Error: it is
// not such a message.
func ParseStatus(data []byte) (Status, error) {
	s, err := wire.DecodeStatus(data)
	return statusOf(s), err
}
