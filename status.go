package duly

import "duly.dev/duly/internal/bus"

// ParseStatus reads one message sent to the subject of [ReplyTo]. Error: it is
// not such a message.
func ParseStatus(data []byte) (Status, error) {
	s, err := bus.DecodeStatus(data)
	return statusOf(s), err
}
