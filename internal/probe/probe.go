// Package probe is the program of the pods in a connectivity test: it answers probes, and sends them.
package probe

import (
	"net/netip"
	"time"
)

// Port is the port on which a probe pod echoes TCP and UDP.
const Port = 8070

// The kinds of probes.
const (
	Ping    = "ping"    // an ICMP echo request
	TCP     = "tcp"     // bytes to a server that echoes them
	UDP     = "udp"     // a datagram to a server that echoes it
	Full    = "full"    // a datagram with the size of the interface's MTU, which may not be fragmented
	Connect = "connect" // TCP: a connection, or its refusal by the host
	DNS     = "dns"     // a lookup of a name
)

// Probe is one probe that a pod sends.
type Probe struct {
	ID      int           `json:"id"`
	Kind    string        `json:"kind"`
	To      netip.Addr    `json:"to,omitzero"`
	Port    uint16        `json:"port,omitempty"`
	Via     string        `json:"via,omitempty"`  // of Full: the interface with the MTU
	Name    string        `json:"name,omitempty"` // of DNS
	Timeout time.Duration `json:"timeout"`        // in nanoseconds
}

// Limit returns the longest time that the probe takes.
func (p Probe) Limit() time.Duration {
	if p.Kind == Full {
		return p.Timeout + searchSteps*p.Timeout/attempts
	}
	return p.Timeout
}

// Outcome is the result of a probe.
type Outcome struct {
	ID    int           `json:"id"`
	Took  time.Duration `json:"took"`            // in nanoseconds
	Size  int           `json:"size,omitempty"`  // of Full: bytes of the IP packet
	Fits  int           `json:"fits,omitempty"`  // of Full that failed: bytes of the longest IP packet that is answered
	Error string        `json:"error,omitempty"` // why it failed; "": it succeeded
}

// Interface is an interface of a probe pod.
type Interface struct {
	Name      string       `json:"name"`
	MTU       int          `json:"mtu"`
	Memif     bool         `json:"memif,omitempty"`
	Addresses []netip.Addr `json:"addresses"` // without link-local ones
}
