package slow

import "sync/atomic"

// cause is the reason why the slow path dropped a packet or a claim.
type cause uint8

const (
	badARP cause = iota
	otherSender
	claimsOurs
	badDiscovery
	badICMP
	notOurs
	notOurs6
	noSource
	noSource6
	noErrorSource
	rateLimited
	noErrorOwed
	queueFull
	tableFull
	unanswered
	staticClaim
	workerFull
	truncated
	badFragment
	overlappingFragments
	manyFragments
	fragmentRefused
	fragmentsMissing
	reassembliesFull
	ignored
	causes
)

// causeNames are the names of the error counters: VPP's name if VPP counts the cause (see forward).
var causeNames = [causes]string{
	badARP:               "arp-input/malformed",
	otherSender:          "arp-reply/l2_address_mismatch",
	claimsOurs:           "arp-reply/l3_src_address_is_local",
	badDiscovery:         "ip6-icmp-input/malformed neighbour message",
	badICMP:              "slow-path/bad checksum or length",
	notOurs:              "arp-reply/l3_dst_address_not_local",
	noSource:             "ip4-arp/no_source_address",
	notOurs6:             "ip6-icmp-input/neighbor_solicitation_source_unknown",
	noSource6:            "ip6-discover-neighbor/no_source_address",
	noErrorSource:        "slow-path/no source address for icmp error",
	rateLimited:          "slow-path/icmp error rate limited",
	noErrorOwed:          "slow-path/icmp error not owed",
	queueFull:            "slow-path/neighbour queue full",
	tableFull:            "slow-path/neighbour resolutions at limit",
	unanswered:           "slow-path/neighbour unanswered",
	staticClaim:          "slow-path/claim on a static neighbour",
	workerFull:           "slow-path/output full",
	truncated:            "slow-path/packet too long",
	badFragment:          "slow-path/fragment with a wrong length",
	overlappingFragments: "slow-path/overlapping fragments",
	manyFragments:        "slow-path/too many fragments of a packet",
	fragmentRefused:      "slow-path/fragment of a refused packet",
	fragmentsMissing:     "slow-path/fragments missing",
	reassembliesFull:     "slow-path/fragmented packets of the interface at limit",
	ignored:              "slow-path/no listener",
}

// causeCounts counts the drops by cause.
type causeCounts [causes]atomic.Uint64

func (cs *causeCounts) drop(c cause) { cs[c].Add(1) }

// Drops adds the drops since the start to sum, by error counter. Any goroutine may call it.
func (cs *causeCounts) Drops(sum map[string]uint64) {
	for c := range cs {
		sum[causeNames[c]] += cs[c].Load()
	}
}
