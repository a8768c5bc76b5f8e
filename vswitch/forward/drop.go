package forward

import "sync/atomic"

// reason says why a frame was dropped; the zero value is no drop. Those the sender is told of come with a punt.
type reason uint8

const (
	kept reason = iota
	dropInterfaceDown
	dropOutputDown
	dropNoPort
	dropShortEthernet
	dropDestinationMAC
	dropEthernetType
	dropVirtio
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
	dropSourceFilter
	dropMACViolation
	dropNotBridged
	dropUnknownMAC
	dropReflected
	dropFilter
	dropNoMembers
	dropReplication
	dropSplitHorizon
	dropNoMember
	dropBVIMAC
	dropBVIType
	dropDescriptor
	dropNoSlot
	dropNoTunnel
	dropTunnelHeader
	dropTunnelChecksum
	dropTunnelNested
	dropTunnelTooBig
	dropTunnelRoute
	dropTunnelWay
	noteLearned // no drops, but what the bridge domains have done, counted with them as VPP does
	noteMoved
	noteTableFull
	noteFlooded
	reasons
)

// reasonNames are worded as VPP's error counters are, where VPP has one.
var reasonNames = [reasons]string{
	dropInterfaceDown:  "interface is down",
	dropOutputDown:     "interface output: interface is down",
	dropNoPort:         "interface output: no port",
	dropShortEthernet:  "ethernet frame too short",
	dropDestinationMAC: "l3 mac mismatch",
	dropEthernetType:   "unknown ethernet type",
	dropVirtio:         "bad virtio header",
	dropNoIP4:          "ip4 not enabled",
	dropShort4:         "ip4 length < 20 bytes",
	dropVersion4:       "ip4 version != 4",
	dropLength4:        "ip4 length > l2 length",
	dropChecksum4:      "ip4 checksum error",
	dropSource4:        "ip4 source address invalid",
	dropSpoofed4:       "ip4 spoofed local-address packet drops",
	dropMulticast4:     "ip4 multicast or broadcast not forwarded",
	dropFragment4:      "ip4 MTU exceeded and DF not set",
	dropNoIP6:          "ip6 not enabled",
	dropShort6:         "ip6 length < 40 bytes",
	dropVersion6:       "ip6 version != 6",
	dropLength6:        "ip6 length > l2 length",
	dropSource6:        "ip6 address invalid",
	dropSpoofed6:       "ip6 spoofed local-address packet drops",
	dropMulticast6:     "ip6 multicast not forwarded",
	dropLinkLocal:      "ip6 link-local not forwarded",
	dropRoute:          "route says drop",
	dropRouteLoop:      "lookup loop between tables",
	dropOwnNoRoute:     "no route for an answer of our own",
	dropSlowFull:       "slow path full",
	dropExpired4:       "ip4 ttl expired",
	dropExpired6:       "ip6 hop limit expired",
	dropNoRoute4:       "ip4 no route",
	dropNoRoute6:       "ip6 no route",
	dropTooBig4:        "ip4 MTU exceeded and DF set",
	dropTooBig6:        "ip6 MTU exceeded",
	dropUnreachable:    "route says unreachable",
	dropProhibited:     "route says prohibited",
	dropNoBuffer:       "no buffers for segments or fragments",
	dropMACIP:          "input ACL table-miss drops",
	dropSourceFilter:   "L2 filter mac drops",
	dropMACViolation:   "L2 mac move violations",
	dropNotBridged:     "L2 feature forwarding disabled",
	dropUnknownMAC:     "L2 forward misses",
	dropReflected:      "Reflection Drop",
	dropFilter:         "Filter Mac Drop",
	dropNoMembers:      "L2 replication complete",
	dropReplication:    "L2 replication failures",
	dropSplitHorizon:   "L2 split horizon drops",
	dropNoMember:       "L2 Output interface not valid",
	dropBVIMAC:         "BVI L3 MAC mismatch",
	dropBVIType:        "BVI packet with unhandled ethertype",
	dropDescriptor:     "memif-input: bad descriptor",
	dropNoSlot:         "memif-tx: no free tx slots",
	dropNoTunnel:       "vxlan: no such tunnel packets",
	dropTunnelHeader:   "vxlan: packets with bad flags field in vxlan header",
	dropTunnelChecksum: "vxlan: UDP checksum error",
	dropTunnelNested:   "vxlan: tunnel in a tunnel",
	dropTunnelTooBig:   "vxlan: packet exceeds the tunnel's MTU",
	dropTunnelRoute:    "vxlan: no way to the other end",
	dropTunnelWay:      "vxlan: envelope exceeds the MTU of its way",
	noteLearned:        "L2 learn misses",
	noteMoved:          "L2 mac moves",
	noteTableFull:      "L2 not learned due to limit",
	noteFlooded:        "L2 flood packets",
}

// dropCounters are one worker's.
type dropCounters [reasons]atomic.Uint64

// Drops returns how many frames were dropped since the start, by reason; reasons that never occurred are left out. As with
// VPP's errors, what bridge domains learned and flooded is counted there too. Any goroutine may call it.
func (e *Engine) Drops() map[string]uint64 {
	sum := map[string]uint64{}
	for _, w := range e.workers {
		for r := range w.drops {
			if n := w.drops[r].Load(); n > 0 {
				sum[reasonNames[r]] += n
			}
		}
	}
	e.slow.Drops(sum)
	if n := e.lostEvents.Load(); n > 0 {
		sum["events that control did not read"] = n
	}
	return sum
}
