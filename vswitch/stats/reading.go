package stats

// Reading is what one collection found.
type Reading struct {
	Workers    int         // forwarding threads
	Interfaces []Interface // each index once
	Errors     []Error     // each name once, always in the same order
}

// Interface is an interface with its totals since it was created.
type Interface struct {
	Index uint32
	Name  string

	Rx, Tx       Combined
	Drops, Punts uint64
	IP4, IP6     uint64
	TxErrors     uint64
}

// Combined counts packets and their bytes.
type Combined struct{ Packets, Bytes uint64 }

// Error is a counter of a graph node, as VPP's "show errors" lists them.
type Error struct {
	Name  string // node, slash, reason
	Count uint64
}

// simple are the counters that have one number an interface, by the names that VPP gives them below /if.
var simple = []struct {
	name string
	of   func(*Interface) uint64
}{
	{"drops", func(i *Interface) uint64 { return i.Drops }},
	{"punt", func(i *Interface) uint64 { return i.Punts }},
	{"ip4", func(i *Interface) uint64 { return i.IP4 }},
	{"ip6", func(i *Interface) uint64 { return i.IP6 }},
	{"tx-error", func(i *Interface) uint64 { return i.TxErrors }},
}

// combined are the counters of packets and bytes.
var combined = []struct {
	name string
	of   func(*Interface) Combined
}{
	{"rx", func(i *Interface) Combined { return i.Rx }},
	{"tx", func(i *Interface) Combined { return i.Tx }},
}
