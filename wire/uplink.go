package wire

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// PuntRedirect sends punted packets of one family, which an interface receives for the dataplane and no protocol of it
// handles, to a neighbour on another interface. Kind vpp.punt-redirect. While one exists, the dataplane also punts
// datagrams to UDP ports without a listener; VPP has one setting for all interfaces.
type PuntRedirect struct {
	Interface string         `json:"interface"` // name of the vpp.interface that receives
	Family    netaddr.Family `json:"family"`
	Via       string         `json:"via"`     // name of the vpp.interface that sends
	NextHop   netip.Addr     `json:"nextHop"` // a vpp.neighbour there
}

// PuntRedirectName returns the name of the redirect of one family of an interface.
func PuntRedirectName(iface string, f netaddr.Family) string { return iface + "/" + string(f) }

// PuntRedirectKey returns the key of PuntRedirectName(iface, f).
func PuntRedirectKey(iface string, f netaddr.Family) string {
	return Key(KindPuntRedirect, PuntRedirectName(iface, f))
}

// Uplink is a network card that the dataplane owns: its addresses and routes are on the kernel's end of a link to the
// dataplane, and the kernel does not process what the card receives. Kind linux.uplink; its name is the card's.
// Deleting it gives the card back to the kernel, with the addresses, routes and settings of Card.
type Uplink struct {
	Card     Card         `json:"card"`
	On       string       `json:"on"`       // key of the object that makes the link to the dataplane
	To       string       `json:"to"`       // name of the kernel's end of that link
	Gateways []netip.Addr `json:"gateways"` // addresses of the dataplane's end, at most one of each family
	MAC      netaddr.MAC  `json:"mac"`      // of the dataplane's end
	Needs    []string     `json:"needs"`    // keys of the objects by which the dataplane serves the card, dependencies

	Drift string `json:"drift,omitempty"` // a difference found in the kernel; never desired
}

// UplinkKey returns the key of an uplink.
func UplinkKey(link string) string { return Key(KindUplink, link) }

// Equal reports whether both have the same fields.
func (u Uplink) Equal(o Uplink) bool {
	return u.Card.Equal(o.Card) && u.On == o.On && u.To == o.To && u.MAC == o.MAC &&
		slices.Equal(u.Gateways, o.Gateways) && slices.Equal(u.Needs, o.Needs) &&
		u.Drift == o.Drift
}

// Gateway returns the dataplane's address of a family; invalid if there is none.
func (u Uplink) Gateway(f netaddr.Family) netip.Addr {
	for _, a := range u.Gateways {
		if netaddr.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Card is the kernel's configuration of a network card before the dataplane owned it.
type Card struct {
	Link string      `json:"link"`
	MAC  netaddr.MAC `json:"mac"`
	MTU  int         `json:"mtu"`
	// IPv4 first, in the order in which they are added; without link-local and temporary ones
	Addresses []CardAddress `json:"addresses"`
	Routes    []CardRoute   `json:"routes"` // of the main table

	AcceptRA     string `json:"acceptRA,omitempty"`     // the setting net.ipv6.conf.LINK.accept_ra; "": the kernel has none
	AllMulticast bool   `json:"allMulticast,omitempty"` // the card received all multicast
	// state of those that are off while the dataplane owns the card, by name in ethtool
	Features map[string]bool `json:"features,omitempty"`
}

// Equal reports whether both have the same fields.
func (c Card) Equal(o Card) bool {
	return c.Link == o.Link && c.MAC == o.MAC && c.MTU == o.MTU && slices.Equal(c.Addresses, o.Addresses) &&
		slices.Equal(c.Routes, o.Routes) &&
		c.AcceptRA == o.AcceptRA && c.AllMulticast == o.AllMulticast && maps.Equal(c.Features, o.Features)
}

// Address returns the first address of a family; invalid if there is none.
func (c Card) Address(f netaddr.Family) netip.Addr {
	for _, a := range c.Addresses {
		if netaddr.FamilyOf(a.Prefix.Addr()) == f {
			return a.Prefix.Addr()
		}
	}
	return netip.Addr{}
}

// Families returns the families of the card's addresses, IPv4 first.
func (c Card) Families() []netaddr.Family {
	var families []netaddr.Family
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		if c.Address(f).IsValid() {
			families = append(families, f)
		}
	}
	return families
}

// CardAddress is an address of a network card with its attributes in the kernel.
type CardAddress struct {
	Prefix    netip.Prefix `json:"prefix"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	Scope     int          `json:"scope,omitempty"`
	Flags     int          `json:"flags,omitempty"`     // IFA_F_... that can be set
	Valid     uint32       `json:"valid,omitempty"`     // lifetime in seconds when it was read; 0: infinite
	Preferred uint32       `json:"preferred,omitempty"` // likewise
}

// CardRoute is a route of the kernel through a network card with its attributes.
type CardRoute struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"` // invalid: on the link itself
	Source      netip.Addr   `json:"source,omitzero"`
	Metric      int          `json:"metric,omitempty"`
	Protocol    int          `json:"protocol,omitempty"`
	Scope       int          `json:"scope,omitempty"`
	Flags       int          `json:"flags,omitempty"` // RTNH_F_... that can be set
	MTU         int          `json:"mtu,omitempty"`
	AdvMSS      int          `json:"advMSS,omitempty"`
}
