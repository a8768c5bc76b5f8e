package southbound

import "strings"

// statistics are the reasons that count no losses: events, for which VPP has no other place, and packets that are not
// meant to go further.
var statistics = map[string]string{
	"L2 replication complete":              "frames to all members of a bridge domain that has no other member",
	"neighbor_solicitation_source_unknown": "neighbour solicitations from addresses that are not on the link: pods send them while they configure an address",
	"l3_dst_address_not_local":             "ARP requests for addresses that the dataplane does not have",
	"multicast not forwarded":              "multicast that stays on its link, such as router solicitations: it is not routed",
	"multicast or broadcast not forwarded": "multicast and broadcast that stay on their link: they are not routed",
	"L2 learn misses":                      "MAC addresses that a bridge domain learned",
	"L2 mac moves":                         "MAC addresses that moved to another interface of a bridge domain",
	"L2 not learned due to limit":          "MAC addresses that were not learned because the table was full; frames to them are flooded",
	"L2 flood packets":                     "frames that a bridge domain flooded",
	"L2 learn packets":                     "frames that a bridge domain received",
	"L2 learn hits":                        "frames from MAC addresses that a bridge domain knew",
	"L2 forward packets":                   "frames that a bridge domain forwarded",
	"L2 forward hits":                      "frames to MAC addresses that a bridge domain knew",
	"good packets decapsulated":            "packets from tunnels",
	"good packets encapsulated":            "packets to tunnels",
	"new sessions added":                   "connections that rules of ACLs permitted",
	"ACL permit packets":                   "packets that a rule of an ACL permitted",
	"checked packets":                      "packets that were compared with ACLs",
	"existing session packets":             "packets of sessions that ACLs opened",
	"restart session timer":                "sessions of ACLs whose timer began again",
	"timed out block":                      "blocks of packets that the kernel passed when their time was up",
	"total received block":                 "blocks of packets from the kernel",
	"L2 input packets":                     "frames that a bridge domain received",
	"L2 output packets":                    "frames that a bridge domain sent",
	"sessions replaced by new ones":        "sessions of ACLs that ended early because an interface had too many",
	"Packets Transmitted":                  "packets within the rate of their interface",
	"ARP replies sent":                     "ARP requests that the dataplane answered",
	"neighbor solicitations for us":        "neighbour solicitations that the dataplane received",
}

// explanations are the causes of drops that operators see most, by VPP's name of the reason.
var explanations = map[string]string{
	"no error":                                     "no route to the destination, or the route drops: see weftctl dataplane fib --to ADDRESS",
	"subinterface down":                            "the receiving interface is down, or does not carry the frame's VLAN",
	"unknown vlan":                                 "frame of a VLAN that the external interface does not carry",
	"interface is down":                            "the sending interface is down",
	"interface is deleted":                         "the sending interface was deleted while packets were on the way",
	"frame too short":                              "the pod sent a frame shorter than an Ethernet header",
	"l3 mac mismatch":                              "the frame was for another MAC address: the sender's neighbour entry is wrong or old",
	"unknown ethernet type":                        "neither IPv4, IPv6 nor ARP on a routed interface, for example LLDP or VLAN tags",
	"bad virtio header":                            "the pod's driver sent an invalid virtio header",
	"segmentation that virtio cannot express":      "the pod's kernel left work to the veth that no dataplane can do, such as segments of SCTP",
	"too_short":                                    "packet shorter than its IP header",
	"version":                                      "wrong IP version in the header",
	"bad_length":                                   "length in the IP header exceeds the packet",
	"bad_checksum":                                 "wrong IPv4 header checksum",
	"source address invalid":                       "source address that no host may use, such as a multicast address",
	"spoofed_local_packets":                        "source address is the dataplane's own",
	"time_expired":                                 "TTL or hop limit expired: a traceroute, or a routing loop",
	"ip4 ttl <= 1":                                 "TTL expired: a traceroute, or a routing loop",
	"mtu_exceeded":                                 "packet exceeds the MTU of the next link and may not be fragmented: compare the MTUs of both ends",
	"cant_fragment_header":                         "packet cannot be fragmented",
	"loop between tables":                          "a route leads through VRFs in a loop",
	"no route for own packet":                      "the dataplane has no route for its own reply",
	"rate of the interface exceeded":               "the pod sends more ARP, ND or ICMP packets than its share of the slow path",
	"queue full":                                   "more ARP, ND or ICMP packets than the slow path handles",
	"ACL deny packets":                             "an ACL denies the packet: a network policy, or a rule against false routers and DHCP servers; weftctl trace shows the rule",
	"too many sessions to add new":                 "the pod's interface has as many sessions as weft-vswitch --acl-sessions allows",
	"Packets Dropped":                              "the packet exceeds the rate of the interface: see the limits of the pod",
	"input ACL misses":                             "anti-spoofing: source MAC or address is not the pod's",
	"L2 filter mac drops":                          "source MAC is filtered",
	"L2 mac move violations":                       "source MAC belongs to another interface and may not move",
	"L2 forward misses":                            "destination MAC is unknown and the bridge domain does not flood unknown MACs",
	"Reflection Drop":                              "destination MAC is behind the interface that sent the frame",
	"Filter Mac Drop":                              "destination MAC is filtered",
	"storm limit exceeded":                         "more broadcast, multicast or unknown frames than stormLimit allows",
	"L2 split horizon drops":                       "frame from a tunnel is not sent to another tunnel",
	"BVI L3 MAC mismatch":                          "frame to the gateway's interface with another destination MAC",
	"bad_desc":                                     "the memif client wrote an invalid descriptor: a bug or an attack in the pod",
	"no_free_slots":                                "the memif client does not empty its ring: its program is too slow, or stopped",
	"no such tunnel packets":                       "VXLAN packets from an unknown node or with an unknown VNI",
	"udp_checksum":                                 "wrong UDP checksum of a VXLAN packet",
	"tunnel in a tunnel":                           "a VXLAN packet would be sent through another tunnel",
	"no route to the other end":                    "no route to the other node: see weftctl status and the node's addresses",
	"packet exceeds the tunnel's MTU":              "the pod's MTU is too large for the tunnel",
	"envelope exceeds the MTU of its route":        "VXLAN packet exceeds the MTU of the uplink",
	"l3_src_address_is_local":                      "ARP request from an address of the dataplane: two hosts use the same address",
	"l2_address_mismatch":                          "ARP with different sender MACs in frame and payload",
	"events not read":                              "API clients do not read their events",
	"no buffers for segments or fragments":         "no free buffer to split a large packet",
	"link-local not forwarded":                     "link-local addresses are not routed",
	"L2 feature forwarding disabled":               "the interface is in no bridge domain, or the bridge domain does not forward",
	"packets with bad flags field in vxlan header": "not a valid VXLAN header",
	"no source address for icmp error":             "the dataplane has no address on the interface to send an ICMP error from",
	"icmp error rate limited":                      "more ICMP errors were due than the rate limit allows",
	"icmp error not owed":                          "no ICMP error is due for this packet, for example for another ICMP error",
	"neighbour unanswered":                         "the next hop does not answer ARP or ND: it is down, or its address is wrong",
	"neighbour queue full":                         "packets that wait for an answer to ARP or ND exceed the queue",
	"neighbour resolutions at limit":               "too many unknown next hops at once, for example a scan of a subnet",
	"claim on a static neighbour":                  "another interface claims the address of a pod: a wrong configuration, or an attack",
	"bad checksum or length":                       "invalid packet to an address of the dataplane",
	"packet too long":                              "packet to an address of the dataplane exceeds what it answers",
	"fragment with a wrong length":                 "invalid fragment to an address of the dataplane",
	"overlapping fragments":                        "fragments to an address of the dataplane overlap, as no host sends them",
	"too many fragments of a packet":               "packet to an address of the dataplane has more fragments than it joins",
	"fragment of a refused packet":                 "another fragment of the packet was invalid",
	"fragments missing":                            "packet to an address of the dataplane was not complete in time: a fragment was lost",
	"fragmented packets of the interface at limit": "incomplete packets to the dataplane's addresses at once; the oldest one made room",
	"bad fragment of a tunnel packet":              "fragments of a tunnel packet overlap, or are too many: the network is faulty, or it is an attack",
	"fragments of a tunnel packet missing":         "a tunnel packet was not complete in time: the network fragments tunnel packets, and lost a fragment",
	"no listener":                                  "packet to a port of the dataplane that has no listener",
	"output full":                                  "the slow path sends more packets than the workers accept",
	"malformed":                                    "malformed ARP message",
	"malformed neighbour message":                  "malformed neighbour discovery message",
	"no_source_address":                            "the interface has no address to send ARP or ND from",
	"more than two VLAN tags":                      "frame with more than two VLAN tags on an anti-spoofed interface",
	"L2 replication failures":                      "no buffer to copy a flooded frame",
	"L2 Output interface not valid":                "the destination interface has left the bridge domain",
	"BVI packet with unhandled ethertype":          "frame to the gateway that is neither IPv4, IPv6 nor ARP",
}

// Explain explains an error counter of the dataplane, "" if it has no explanation. Reasons of several nodes have one
// explanation. A statistic counts no losses.
func Explain(node, reason string) (text string, statistic bool) {
	if text, ok := statistics[reason]; ok {
		return text, true
	}
	if text, ok := explanations[reason]; ok {
		return text, false
	}
	if strings.HasSuffix(node, "-tx") {
		return "the pod does not accept packets: its queue is full", false
	}
	return "", false
}
