package egress

import (
	"net/netip"
	"slices"
)

// nat64 holds IPv4 addresses within IPv6, which a gateway translates.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// special are the networks of IANA's special-purpose registries for IPv4 and IPv6 that no service of the internet is in,
// besides those that package netip knows. Those of IPv6 that hold IPv4 addresses count whatever these are: a tunnel would
// lead anywhere.
var special = prefixes("0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10")

// carrier is a network of carriers' own, which organisations use as a private one.
var carrier = netip.MustParsePrefix("100.64.0.0/10")

// metadata is where clouds give a machine its credentials, by what is no link-local address too.
var metadata = addresses("169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, text := range all {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

func addresses(all ...string) (parsed []netip.Addr) {
	for _, text := range all {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

// plain is the address that is reached in the end: without a zone, and out of the IPv6 address that stands for it.
func plain(addr netip.Addr) netip.Addr {
	if addr = addr.Unmap().WithZone(""); nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// Public reports whether an address is one of the internet.
func Public(addr netip.Addr) bool {
	addr = plain(addr)
	return addr.IsGlobalUnicast() && !addr.IsPrivate() && !carrier.Contains(addr) && !Metadata(addr) &&
		!slices.ContainsFunc(special, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// Private reports whether an address is of an organisation's own network: neither of this machine or its neighbours, nor
// where a cloud has its metadata.
func Private(addr netip.Addr) bool {
	addr = plain(addr)
	return (addr.IsPrivate() || carrier.Contains(addr)) && !Metadata(addr)
}

// Metadata reports whether an address is a cloud's for the metadata of its machines.
func Metadata(addr netip.Addr) bool { return slices.Contains(metadata, plain(addr)) }
