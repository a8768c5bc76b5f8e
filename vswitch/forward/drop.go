package forward

import (
	"maps"
	"sync/atomic"
)

// reason is why a frame was dropped; the zero value means that it was not. A drop with an ICMP error has a punt, too.
type reason uint8

const (
	noDrop reason = iota
	dropInterfaceDown
	dropOutputDown
	dropNoPort
	dropShortEthernet
	dropDestinationMAC
	dropEthernetType
	dropUnknownVLAN
	dropVirtio
	dropSegmentation
	dropNoIP4
	dropShort4
	dropVersion4
	dropLength4
	dropChecksum4
	dropSource4
	dropSpoofed4
	dropMulticast4
	dropFragment4
	dropNoIP6
	dropShort6
	dropVersion6
	dropLength6
	dropSource6
	dropSpoofed6
	dropMulticast6
	dropLinkLocal
	dropRoute
	dropRouteLoop
	dropOwnNoRoute
	dropSlowFull
	dropPuntRate
	dropExpired4
	dropExpired6
	dropNoRoute4
	dropNoRoute6
	dropTooBig4
	dropTooBig6
	dropUnreachable
	dropProhibited
	dropNoBuffer
	dropMACIP
	dropMACIP4
	dropMACIP6
	dropACLTags
	dropSourceFilter
	dropMACViolation
	dropNotBridged
	dropUnknownMAC
	dropReflected
	dropFilter
	dropNoMembers
	dropReplication
	dropStorm
	dropSplitHorizon
	dropNoMember
	dropBVIMAC
	dropBVIType
	dropDescriptor
	dropNoSlot
	dropNoTunnel
	dropTunnelHeader
	dropTunnelChecksum
	dropTunnelFragment
	dropTunnelIncomplete
	dropTunnelNested
	dropTunnelTooBig
	dropTunnelRoute
	dropTunnelRouteMTU
	dropPolicerInput
	dropPolicerOutput
	statLearned // bridge domain statistics, which VPP counts among the errors
	statMoved
	statTableFull
	statFlooded
	statReplaced
	dropACL      // with the seven after it by node, see aclReason
	dropSessions = dropACL + aclNodes
	statSessions = dropACL + 2*aclNodes
	reasons      = dropACL + 3*aclNodes
)

// aclNodes is the number of graph nodes that apply IP ACLs: for both directions, for routed and bridged packets of both
// families.
const aclNodes = 8

var aclNodeNames = [aclNodes]string{
	"acl-plugin-in-ip4-fa", "acl-plugin-in-ip6-fa", "acl-plugin-in-ip4-l2", "acl-plugin-in-ip6-l2",
	"acl-plugin-out-ip4-fa", "acl-plugin-out-ip6-fa", "acl-plugin-out-ip4-l2", "acl-plugin-out-ip6-l2",
}

// reasonNames are the names of error counters: a graph node of VPP, a slash, and VPP's name of the error. Names in
// plain words without a counterpart in VPP are ours; docs/operations.md lists them.
var reasonNames = withACLNames([reasons]string{
	dropInterfaceDown:    "ethernet-input/subinterface down",
	dropOutputDown:       "interface-output/interface is down",
	dropNoPort:           "interface-output/interface is deleted",
	dropShortEthernet:    "ethernet-input/frame too short",
	dropDestinationMAC:   "ethernet-input/l3 mac mismatch",
	dropEthernetType:     "ethernet-input/unknown ethernet type",
	dropUnknownVLAN:      "ethernet-input/unknown vlan",
	dropVirtio:           "virtio-input/bad virtio header",
	dropSegmentation:     "af-packet-input/segmentation that virtio cannot express",
	dropNoIP4:            noError,
	dropShort4:           "ip4-input/too_short",
	dropVersion4:         "ip4-input/version",
	dropLength4:          "ip4-input/bad_length",
	dropChecksum4:        "ip4-input/bad_checksum",
	dropSource4:          "ip4-input/source address invalid",
	dropSpoofed4:         "ip4-local/spoofed_local_packets",
	dropMulticast4:       "ip4-input/multicast or broadcast not forwarded",
	dropFragment4:        "ip4-frag/cant_fragment_header",
	dropNoIP6:            noError,
	dropShort6:           "ip6-input/too_short",
	dropVersion6:         "ip6-input/version",
	dropLength6:          "ip6-input/bad_length",
	dropSource6:          "ip6-input/source address invalid",
	dropSpoofed6:         "ip6-local/spoofed_local_packets",
	dropMulticast6:       "ip6-input/multicast not forwarded",
	dropLinkLocal:        "ip6-input/link-local not forwarded",
	dropRoute:            noError,
	dropRouteLoop:        "ip-lookup/loop between tables",
	dropOwnNoRoute:       "slow-path/no route for own packet",
	dropSlowFull:         "slow-path/queue full",
	dropPuntRate:         "slow-path/rate of the interface exceeded",
	dropExpired4:         "ip4-input/time_expired",
	dropExpired6:         "ip6-input/time_expired",
	dropNoRoute4:         noError,
	dropNoRoute6:         noError,
	dropTooBig4:          "ip4-input/mtu_exceeded",
	dropTooBig6:          "ip6-input/mtu_exceeded",
	dropUnreachable:      noError,
	dropProhibited:       noError,
	dropNoBuffer:         "interface-output/no buffers for segments or fragments",
	dropMACIP:            "l2-input-acl/input ACL misses",
	dropMACIP4:           "ip4-inacl/input ACL misses",
	dropMACIP6:           "ip6-inacl/input ACL misses",
	dropACLTags:          "acl-plugin-in-nonip-l2/more than two VLAN tags",
	dropSourceFilter:     "l2-learn/L2 filter mac drops",
	dropMACViolation:     "l2-learn/L2 mac move violations",
	dropNotBridged:       "feature-bitmap-drop/L2 feature forwarding disabled",
	dropUnknownMAC:       "l2-fwd/L2 forward misses",
	dropReflected:        "l2-fwd/Reflection Drop",
	dropFilter:           "l2-fwd/Filter Mac Drop",
	dropNoMembers:        "l2-flood/L2 replication complete",
	dropReplication:      "l2-flood/L2 replication failures",
	dropStorm:            "l2-flood/storm limit exceeded",
	dropSplitHorizon:     "l2-output/L2 split horizon drops",
	dropNoMember:         "l2-output/L2 Output interface not valid",
	dropBVIMAC:           "l2-fwd/BVI L3 MAC mismatch",
	dropBVIType:          "l2-fwd/BVI packet with unhandled ethertype",
	dropDescriptor:       "memif-input/bad_desc",
	dropNoSlot:           "memif-tx/no_free_slots",
	dropNoTunnel:         "vxlan4-input/no such tunnel packets",
	dropTunnelHeader:     "vxlan4-input/packets with bad flags field in vxlan header",
	dropTunnelChecksum:   "ip4-local/udp_checksum",
	dropTunnelFragment:   "vxlan4-input/bad fragment of a tunnel packet",
	dropTunnelIncomplete: "vxlan4-input/fragments of a tunnel packet missing",
	dropTunnelNested:     "vxlan4-encap/tunnel in a tunnel",
	dropTunnelTooBig:     "vxlan4-encap/packet exceeds the tunnel's MTU",
	dropTunnelRoute:      "vxlan4-encap/no route to the other end",
	dropTunnelRouteMTU:   "vxlan4-encap/envelope exceeds the MTU of its route",
	dropPolicerInput:     "policer-input/Packets Dropped",
	dropPolicerOutput:    "policer-output/Packets Dropped",
	statLearned:          "l2-learn/L2 learn misses",
	statMoved:            "l2-learn/L2 mac moves",
	statTableFull:        "l2-learn/L2 not learned due to limit",
	statFlooded:          "l2-flood/L2 flood packets",
	statReplaced:         "acl-plugin/sessions replaced by new ones",
})

// withACLNames adds the names of the counters of each node that applies IP ACLs.
func withACLNames(names [reasons]string) [reasons]string {
	for n, node := range aclNodeNames {
		names[dropACL+reason(n)] = node + "/ACL deny packets"
		names[dropSessions+reason(n)] = node + "/too many sessions to add new"
		names[statSessions+reason(n)] = node + "/new sessions added"
	}
	return names
}

// noError is the counter of packets that VPP drops without an error of the dropping node, for example by a route: the
// error of ethernet-input remains.
const noError = "ethernet-input/no error"

// dropCounters are the counters of one worker.
type dropCounters [reasons]atomic.Uint64

// Errors returns the error counters since the start, zeros included. As in VPP they include statistics of bridge
// domains. Any goroutine may call it.
func (e *Engine) Errors() map[string]uint64 {
	sum := map[string]uint64{}
	for r := noDrop + 1; r < reasons; r++ {
		for _, w := range e.workers {
			sum[reasonNames[r]] += w.drops[r].Load()
		}
	}
	e.slow.Drops(sum)
	e.memifs.counts.addTo(sum)
	sum["slow-path/events not read"] += e.lostEvents.Load()
	return sum
}

// Drops returns the error counters that are not zero.
func (e *Engine) Drops() map[string]uint64 {
	sum := e.Errors()
	maps.DeleteFunc(sum, func(_ string, n uint64) bool { return n == 0 })
	return sum
}

// Counters are the totals of an interface since it was created.
type Counters struct {
	RxPackets, RxBytes uint64 // received from the port, including dropped frames
	TxPackets, TxBytes uint64 // sent to the port
	RxIP4, RxIP6       uint64 // of RxPackets
	Drops              uint64 // received here and dropped
	Punts              uint64 // received here and punted to the slow path
	TxErrors           uint64 // refused by the port
}

// counters are one worker's share of an interface's counters: only that worker writes them.
type counters struct {
	rxPackets, rxBytes atomic.Uint64
	txPackets, txBytes atomic.Uint64
	rxIP4, rxIP6       atomic.Uint64
	drops, punts       atomic.Uint64
	txErrors           atomic.Uint64
	_                  [56]byte // keeps the counters of two workers on separate cache lines
}

func newCounterSet(workers int) []*counters {
	set := make([]*counters, workers)
	for i := range set {
		set[i] = new(counters)
	}
	return set
}

// Counters sums the counters of all workers for a published interface; zero if there is none.
func (e *Engine) Counters(index uint32) Counters {
	var sum Counters
	i := e.live.Load().iface(index)
	if i == nil {
		return sum
	}
	for _, c := range i.counters {
		sum.RxPackets += c.rxPackets.Load()
		sum.RxBytes += c.rxBytes.Load()
		sum.TxPackets += c.txPackets.Load()
		sum.TxBytes += c.txBytes.Load()
		sum.RxIP4 += c.rxIP4.Load()
		sum.RxIP6 += c.rxIP6.Load()
		sum.Drops += c.drops.Load()
		sum.Punts += c.punts.Load()
		sum.TxErrors += c.txErrors.Load()
	}
	return sum
}
