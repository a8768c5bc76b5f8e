package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// DNS is the resolver configuration of a CNI result.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether all fields are empty.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// Or returns the configuration, or the other one if it is empty.
func (d DNS) Or(other DNS) DNS {
	if d.IsZero() {
		return other
	}
	return d
}

// exceeded says which limit the configuration exceeds; "" if none.
func (d DNS) exceeded() string {
	for _, list := range []struct {
		name  string
		texts []string
	}{
		{"name servers", d.Nameservers},
		{"search domains", d.Search},
		{"options of the resolver", d.Options},
		{"domains", []string{d.Domain}},
	} {
		if len(list.texts) > MaxDNS {
			return tooMany(list.name, len(list.texts), MaxDNS)
		}
		for _, text := range list.texts {
			if len(text) > MaxDNSText {
				return fmt.Sprintf("%s with %d bytes, at most %d are possible: %.80q", list.name, len(text), MaxDNSText,
					text)
			}
		}
	}
	return ""
}

func tooMany(what string, has, most int) string {
	return fmt.Sprintf("%d %s, at most %d are possible", has, what, most)
}

// Validate rejects a configuration that no network can have.
func (d DNS) Validate() error {
	if why := d.exceeded(); why != "" {
		return errors.New(why)
	}
	for _, text := range d.Nameservers {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("nameservers: %.80q is not the address of a name server", text)
		}
	}
	if d.Domain != "" && !isDomain(d.Domain) {
		return fmt.Errorf("domain: %.80q is not a domain", d.Domain)
	}
	for _, text := range d.Search {
		if !isDomain(text) {
			return fmt.Errorf("search: %.80q is not a domain", text)
		}
	}
	for _, text := range d.Options {
		if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("options: %.80q is not an option of a resolver, such as ndots:2", text)
		}
	}
	return nil
}

func (n *Network) checkDNS() error {
	if err := n.DNS.Validate(); err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	return nil
}

// isDomain reports whether s is a domain, with or without a dot at its end.
func isDomain(s string) bool { return len(s) <= 253 && isSubdomain(strings.TrimSuffix(s, ".")) }

// AtMostOneDNS rejects several interfaces of a pod that ask for the DNS of their networks.
func AtMostOneDNS(asking []string) error {
	if len(asking) < 2 {
		return nil
	}
	return fmt.Errorf("%q: dns: interface %s has this option, and a CNI result has one DNS; remove one of both", asking[1],
		asking[0])
}
