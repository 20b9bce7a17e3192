package wire

import "maps"

// Header are the headers of a message, as NATS has them: names are case-sensitive. It
// converts to and from the header type of the NATS client without a copy.
type Header map[string][]string

// Get is the first value of a header, or empty.
func (h Header) Get(name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// said is what a submitter said: without what Duly adds when it moves a message.
func (h Header) said() Header {
	if _, moved := h[HeaderStored]; !moved {
		return h
	}
	said := maps.Clone(h)
	delete(said, HeaderStored)
	return said
}
