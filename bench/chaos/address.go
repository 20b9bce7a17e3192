package main

import (
	"fmt"
	"net/url"
)

// addrOf is host:port of a URL.
func addrOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("address of %q: want a URL with a host", text)
	}
	return u.Host, nil
}
