package wire

import (
	"maps"
	"net/netip"
	"slices"
)

// PuntRedirect hands packets of one family that an interface receives for the dataplane itself, and that the dataplane does not
// serve, to a neighbour on another interface. Kind vpp.punt-redirect. While one exists, datagrams to UDP ports on which the
// dataplane does not listen are handed over too; VPP has one setting for that, for all interfaces.
type PuntRedirect struct {
	Interface string     `json:"interface"` // name of the vpp.interface that receives
	Family    Family     `json:"family"`
	Via       string     `json:"via"`     // name of the vpp.interface that the packets leave by
	NextHop   netip.Addr `json:"nextHop"` // a vpp.neighbour there
}

// PuntRedirectName names the redirect of one family of an interface.
func PuntRedirectName(iface string, f Family) string { return iface + "/" + string(f) }

// PuntRedirectKey is the key of PuntRedirectName(iface, f).
func PuntRedirectKey(iface string, f Family) string {
	return Key(KindPuntRedirect, PuntRedirectName(iface, f))
}

// Uplink is a network card that the dataplane owns: its addresses and routes are on the kernel's end of a link to the dataplane,
// and the kernel does not process what the card receives. Kind linux.uplink; its name is the card's. Deleting it gives the card
// back to the kernel, with the addresses, routes and settings of Card.
type Uplink struct {
	Card     Card         `json:"card"`
	On       string       `json:"on"`       // key of the object that makes the link to the dataplane
	To       string       `json:"to"`       // name of the kernel's end of that link
	Gateways []netip.Addr `json:"gateways"` // addresses of the dataplane's end, at most one of each family
	MAC      MAC          `json:"mac"`      // of the dataplane's end
	Needs    []string     `json:"needs"`    // keys of the objects by which the dataplane serves the card; they are made before

	Drift string `json:"drift,omitempty"` // what is not so any more in the kernel: never desired, only found
}

// UplinkKey is the key of the card of that name.
func UplinkKey(link string) string { return Key(KindUplink, link) }

// Equal reports whether both are the same.
func (u Uplink) Equal(o Uplink) bool {
	return u.Card.Equal(o.Card) && u.On == o.On && u.To == o.To && u.MAC == o.MAC && slices.Equal(u.Gateways, o.Gateways) && slices.Equal(u.Needs, o.Needs) &&
		u.Drift == o.Drift
}

// Gateway is the dataplane's end of a family; not valid if there is none.
func (u Uplink) Gateway(f Family) netip.Addr {
	for _, a := range u.Gateways {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Card is what the kernel had on a network card before the dataplane took it.
type Card struct {
	Link      string        `json:"link"`
	MAC       MAC           `json:"mac"`
	MTU       int           `json:"mtu"`
	Addresses []CardAddress `json:"addresses"` // IPv4 first, in the order in which they are added; without link-local and temporary ones
	Routes    []CardRoute   `json:"routes"`    // of the main table

	AcceptRA     string          `json:"acceptRA,omitempty"`     // the setting net.ipv6.conf.LINK.accept_ra; "": the kernel has none
	AllMulticast bool            `json:"allMulticast,omitempty"` // the card received all multicast
	Features     map[string]bool `json:"features,omitempty"`     // those that change while the dataplane has the card, as they were; names of ethtool
}

// Equal reports whether both are the same.
func (c Card) Equal(o Card) bool {
	return c.Link == o.Link && c.MAC == o.MAC && c.MTU == o.MTU && slices.Equal(c.Addresses, o.Addresses) && slices.Equal(c.Routes, o.Routes) &&
		c.AcceptRA == o.AcceptRA && c.AllMulticast == o.AllMulticast && maps.Equal(c.Features, o.Features)
}

// Address is the first address of a family; not valid if there is none.
func (c Card) Address(f Family) netip.Addr {
	for _, a := range c.Addresses {
		if FamilyOf(a.Prefix.Addr()) == f {
			return a.Prefix.Addr()
		}
	}
	return netip.Addr{}
}

// Families are those of the card's addresses, IPv4 first.
func (c Card) Families() []Family {
	var families []Family
	for _, f := range []Family{IP4, IP6} {
		if c.Address(f).IsValid() {
			families = append(families, f)
		}
	}
	return families
}

// CardAddress is an address of a network card, with what the kernel keeps of it.
type CardAddress struct {
	Prefix    netip.Prefix `json:"prefix"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	Scope     int          `json:"scope,omitempty"`
	Flags     int          `json:"flags,omitempty"`     // IFA_F_... that can be set
	Valid     uint32       `json:"valid,omitempty"`     // seconds left when it was read; 0: for ever
	Preferred uint32       `json:"preferred,omitempty"` // likewise
}

// CardRoute is a route of the kernel by a network card, with what the kernel keeps of it.
type CardRoute struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"` // not valid: on the link itself
	Source      netip.Addr   `json:"source,omitzero"`
	Metric      int          `json:"metric,omitempty"`
	Protocol    int          `json:"protocol,omitempty"`
	Scope       int          `json:"scope,omitempty"`
	Flags       int          `json:"flags,omitempty"` // RTNH_F_... that can be set
	MTU         int          `json:"mtu,omitempty"`
	AdvMSS      int          `json:"advMSS,omitempty"`
}
