package slow

// cause says why the slow path dropped something.
type cause uint8

const (
	badARP cause = iota
	badDiscovery
	badICMP
	notOurs
	noSource
	rateLimited
	noErrorOwed
	queueFull
	tableFull
	unanswered
	staticClaim
	workerFull
	truncated
	fragmented
	ignored
	causes
)

var causeNames = [causes]string{
	badARP:       "arp malformed",
	badDiscovery: "nd malformed",
	badICMP:      "bad icmp checksum or length",
	notOurs:      "neighbour message not for us",
	noSource:     "no source address on the interface",
	rateLimited:  "icmp error rate limited",
	noErrorOwed:  "icmp error not owed",
	queueFull:    "neighbour queue full",
	tableFull:    "neighbour resolutions at limit",
	unanswered:   "neighbour unanswered",
	staticClaim:  "claim on a static neighbour",
	workerFull:   "slow path's output full",
	truncated:    "too long for the slow path",
	fragmented:   "fragment to a local address",
	ignored:      "local packet nobody listens to",
}

func (p *Path) drop(c cause) { p.drops[c].Add(1) }

// Drops adds what was dropped since the start, by cause, to sum; causes that never occurred are left out. Any goroutine
// may ask.
func (p *Path) Drops(sum map[string]uint64) {
	for c := range p.drops {
		if n := p.drops[c].Load(); n > 0 {
			sum[causeNames[c]] += n
		}
	}
}
