package wire

// Header are the headers of a message, as NATS has them: names are case-sensitive. It
// converts to and from the header type of the NATS client without a copy.
type Header map[string][]string

// With is the header with one more value; an empty one is left out. A nil header is made.
func (h Header) With(name, value string) Header {
	if value == "" {
		return h
	}
	if h == nil {
		h = make(Header, 4)
	}
	h[name] = []string{value}
	return h
}

// Get is the first value of a header, or empty.
func (h Header) Get(name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
