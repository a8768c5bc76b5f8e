package agent

import (
	"fmt"
	"net/netip"
	"strings"
)

// Prefixes are ranges of addresses, masked.
type Prefixes []netip.Prefix

// String shows the prefixes as they would be given.
func (p *Prefixes) String() string {
	texts := make([]string, len(*p))
	for i, prefix := range *p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// Set replaces the prefixes.
func (p *Prefixes) Set(text string) error {
	*p = nil
	if text == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(item))
		switch {
		case err != nil:
			return err
		case prefix != prefix.Masked():
			return fmt.Errorf("%s has host bits set, did you mean %s?", prefix, prefix.Masked())
		case prefix.Addr().Is4In6():
			return fmt.Errorf("%s is an IPv4 prefix in the form of IPv6", prefix)
		}
		*p = append(*p, prefix)
	}
	return nil
}

// Type names the value in the help text.
func (p *Prefixes) Type() string { return "prefixes" }
