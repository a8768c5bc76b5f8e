package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// State is the state at a scrape. Nil fields have no metrics.
type State struct {
	QueueDepth  int
	DeleteQueue *int
	Connected   bool                      // to the dataplane
	Ready       bool                      // serves pods
	Conditions  map[string]bool           // by name, as in weftctl status
	Objects     map[string]map[string]int // by kind and phase
	Addresses   map[string]Addresses      // by pool

	Devices       map[string]int    // by state
	Registrations map[string]uint64 // attempts to register with kubelet, by result

	Rejections  int // number of rejected parts of other nodes' announcements
	Quarantined int // number of quarantined attachments

	EventsDropped *uint64 // Events on pods that were not written to the API server

	Interfaces []Interface
	Links      map[string]Traffic // between the dataplane and the node: host, tunnel, uplink, punt
	Tunnels    map[string]Traffic // by the name of the other node
	Errors     []Error
	Policies   []PolicyCount
}

// Traffic has the counters of an interface from the dataplane's perspective.
type Traffic struct {
	RxPackets, RxBytes, RxDrops uint64
	TxPackets, TxBytes, TxDrops uint64
}

// Add returns the sum.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{
		t.RxPackets + o.RxPackets, t.RxBytes + o.RxBytes, t.RxDrops + o.RxDrops,
		t.TxPackets + o.TxPackets, t.TxBytes + o.TxBytes, t.TxDrops + o.TxDrops,
	}
}

// Error is an error counter of a graph node of the dataplane.
type Error struct {
	Node, Reason string
	Count        uint64
}

// PolicySeries is a policy in a direction of its pods, ingress or egress, with what its rules decide: allow or deny.
type PolicySeries struct{ Policy, Direction, Action string }

// PolicyCount counts the packets for which the rules of a policy decided.
type PolicyCount struct {
	PolicySeries
	Packets uint64
}

// Addresses are the numbers of addresses of a pool by state.
type Addresses struct{ Used, Leased, Cooling, Free uint64 }

// Interface has the counters of a pod's interface from the pod's perspective.
type Interface struct {
	Namespace, Pod string // "": a container without a pod
	Name           string // in the pod
	Type           string

	RxPackets, RxBytes, RxDrops uint64
	TxPackets, TxBytes, TxDrops uint64
	Connected                   *bool // of a memif: whether the pod's program is connected
}

var (
	ofInterface = []string{"namespace", "pod", "interface", "type"}

	queueDepth    = describe("event_queue_depth", "Events in the queue.")
	deleteQueue   = describe("delete_queue_length", "DELs that the CNI plugin queued for the agent.")
	isReady       = describe("ready", "Whether the agent serves pods, 1 or 0.")
	connected     = describe("dataplane_connected", "Whether the dataplane is connected, 1 or 0.")
	conditions    = describe("condition", "Conditions of the node, 1 if the condition holds, else 0.", "condition")
	objects       = describe("objects", "Objects by kind and phase.", "kind", "phase")
	addresses     = describe("addresses", "Addresses of pools by state.", "pool", "state")
	devices       = describe("devices", "Memif devices by state.", "state")
	registrations = describe("kubelet_registrations_total", "Attempts to register with kubelet.", "result")
	eventsDropped = describe("pod_events_dropped_total", "Events on pods that were not written to the API server.")
	quarantined   = describe("quarantined_attachments",
		"Attachments that are not replayed because they crashed the dataplane.")
	rejections = describe("rejected_announcements",
		"Parts of other nodes' announcements that are rejected because they are not granted to the node.")
	rxPackets = describe("interface_rx_packets_total", "Packets that a pod's interface received.", ofInterface...)
	rxBytes   = describe("interface_rx_bytes_total", "Bytes that a pod's interface received.", ofInterface...)
	rxDrops   = describe("interface_rx_drops_total",
		"Packets to a pod's interface that it did not accept.", ofInterface...)
	txPackets = describe("interface_tx_packets_total", "Packets that a pod's interface sent.", ofInterface...)
	txBytes   = describe("interface_tx_bytes_total", "Bytes that a pod's interface sent.", ofInterface...)
	txDrops   = describe("interface_tx_drops_total",
		"Packets from a pod's interface that the dataplane dropped.", ofInterface...)
	graphErrors = describe("dataplane_errors_total",
		"Packets that a graph node of the dataplane dropped or counted, by reason.", "node", "reason")
	ofPolicies = describe("policy_packets_total",
		"Packets for which the rules of a network policy decided.", "policy", "direction", "action")
	ofLinks       = describeTraffic("link", "the link between the dataplane and the node", "link")
	ofTunnels     = describeTraffic("tunnel", "the tunnels to another node", "node")
	seriesDropped = describe("series_dropped",
		"Label sets that are not exported because a metric reached its bound.", "metric")
	connection = describe("memif_connected",
		"Whether a pod's program is connected to its memif, 1 or 0.", ofInterface[:3]...)
)

// traffic describes the counters of a kind of interface.
type traffic struct{ rxPackets, rxBytes, rxDrops, txPackets, txBytes, txDrops *prometheus.Desc }

func describeTraffic(name, of, label string) traffic {
	return traffic{
		rxPackets: describe(name+"_rx_packets_total", "Packets that the dataplane received from "+of+".", label),
		rxBytes:   describe(name+"_rx_bytes_total", "Bytes that the dataplane received from "+of+".", label),
		rxDrops:   describe(name+"_rx_drops_total", "Packets from "+of+" that the dataplane dropped.", label),
		txPackets: describe(name+"_tx_packets_total", "Packets that the dataplane sent to "+of+".", label),
		txBytes:   describe(name+"_tx_bytes_total", "Bytes that the dataplane sent to "+of+".", label),
		txDrops:   describe(name+"_tx_drops_total", "Packets to "+of+" that were not sent.", label),
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

// reading is a collector of the state at one scrape.
type reading struct{ State }

// Describe sends no descriptions: the metrics differ between scrapes.
func (r reading) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (r reading) Collect(to chan<- prometheus.Metric) {
	out := sink(to)
	out.gauge(queueDepth, float64(r.QueueDepth))
	if r.DeleteQueue != nil {
		out.gauge(deleteQueue, float64(*r.DeleteQueue))
	}
	out.gauge(connected, oneIf(r.Connected))
	out.gauge(isReady, oneIf(r.Ready))
	r.collectNames(out)
	out.gauge(quarantined, float64(r.Quarantined))
	out.gauge(rejections, float64(r.Rejections))
	if r.EventsDropped != nil {
		out.counter(eventsDropped, *r.EventsDropped)
	}
	r.collectTraffic(out)
}

// collectNames sends the metrics of conditions, objects, pools and devices.
func (r reading) collectNames(out sink) {
	conditionNames, left := firstNames(r.Conditions, maxConditions)
	out.dropped("weft_condition", left)
	for _, name := range conditionNames {
		out.gauge(conditions, oneIf(r.Conditions[name]), valid(name))
	}
	kinds, left := firstNames(r.Objects, maxKinds)
	out.dropped("weft_objects", left)
	for _, kind := range kinds {
		phases, _ := firstNames(r.Objects[kind], maxPhases)
		for _, phase := range phases {
			out.gauge(objects, float64(r.Objects[kind][phase]), valid(kind), valid(phase))
		}
	}
	pools, left := firstNames(r.Addresses, maxPools)
	out.dropped("weft_addresses", left)
	for _, pool := range pools {
		a := r.Addresses[pool]
		pool := valid(pool)
		out.gauge(addresses, float64(a.Used), pool, "used")
		out.gauge(addresses, float64(a.Leased), pool, "leased")
		out.gauge(addresses, float64(a.Cooling), pool, "cooling")
		out.gauge(addresses, float64(a.Free), pool, "free")
	}
	states, left := firstNames(r.Devices, maxStates)
	out.dropped("weft_devices", left)
	for _, state := range states {
		out.gauge(devices, float64(r.Devices[state]), valid(state))
	}
	results, left := firstNames(r.Registrations, maxResults)
	out.dropped("weft_kubelet_registrations_total", left)
	for _, result := range results {
		out.counter(registrations, r.Registrations[result], valid(result))
	}
}

// collectTraffic sends the dataplane's counters.
func (r reading) collectTraffic(out sink) {
	interfaces := merged(r.Interfaces)
	keys, left := first(interfaces, maxInterfaces, compareInterfaces)
	out.dropped("weft_interface", left)
	for _, key := range keys {
		out.ofInterface(interfaces[key])
	}
	links, left := firstNames(r.Links, maxLinks)
	out.dropped("weft_link", left)
	for _, link := range links {
		out.traffic(ofLinks, r.Links[link], valid(link))
	}
	peers, left := firstNames(r.Tunnels, maxPeers-1)
	rest := Traffic{}
	for name, t := range r.Tunnels {
		if _, kept := slices.BinarySearch(peers, name); kept {
			out.traffic(ofTunnels, t, valid(name))
			continue
		}
		rest = rest.Add(t)
	}
	if left > 0 {
		out.traffic(ofTunnels, rest, Other)
	}
	r.collectErrors(out)
	r.collectPolicies(out)
}

// collectErrors sends the error counters. Different counters may have the same labels once their names are cut.
func (r reading) collectErrors(out sink) {
	sums := make(map[[2]string]uint64, len(r.Errors))
	for _, e := range r.Errors {
		sums[[2]string{valid(e.Node), valid(e.Reason)}] += e.Count
	}
	keys, left := first(sums, maxErrors, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	out.dropped("weft_dataplane_errors_total", left)
	for _, key := range keys {
		out.counter(graphErrors, sums[key], key[0], key[1])
	}
}

// collectPolicies sends the counters of policies.
func (r reading) collectPolicies(out sink) {
	sums := make(map[PolicySeries]uint64, len(r.Policies))
	for _, c := range r.Policies {
		c.Policy = valid(c.Policy)
		c.Direction = valid(c.Direction)
		c.Action = valid(c.Action)
		sums[c.PolicySeries] += c.Packets
	}
	keys, left := first(sums, maxPolicies, func(a, b PolicySeries) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(a.Action, b.Action))
	})
	out.dropped("weft_policy_packets_total", left)
	for _, key := range keys {
		out.counter(ofPolicies, sums[key], key.Policy, key.Direction, key.Action)
	}
}

// sink receives the metrics of a reading. Invalid metrics are skipped.
type sink chan<- prometheus.Metric

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, value, labels...); err == nil {
		s <- m
	}
}

func (s sink) counter(d *prometheus.Desc, count uint64, labels ...string) {
	if m, err := prometheus.NewConstMetric(d, prometheus.CounterValue, float64(count), labels...); err == nil {
		s <- m
	}
}

// dropped reports label sets above a bound.
func (s sink) dropped(metric string, left int) {
	if left > 0 {
		s.gauge(seriesDropped, float64(left), metric)
	}
}

func (s sink) traffic(d traffic, t Traffic, label string) {
	s.counter(d.rxPackets, t.RxPackets, label)
	s.counter(d.rxBytes, t.RxBytes, label)
	s.counter(d.rxDrops, t.RxDrops, label)
	s.counter(d.txPackets, t.TxPackets, label)
	s.counter(d.txBytes, t.TxBytes, label)
	s.counter(d.txDrops, t.TxDrops, label)
}

func (s sink) ofInterface(i *Interface) {
	labels := []string{i.Namespace, i.Pod, i.Name, i.Type}
	s.counter(rxPackets, i.RxPackets, labels...)
	s.counter(rxBytes, i.RxBytes, labels...)
	s.counter(rxDrops, i.RxDrops, labels...)
	s.counter(txPackets, i.TxPackets, labels...)
	s.counter(txBytes, i.TxBytes, labels...)
	s.counter(txDrops, i.TxDrops, labels...)
	if i.Connected != nil {
		s.gauge(connection, oneIf(*i.Connected), labels[:3]...)
	}
}

// merged adds the counters of interfaces with the same labels: of several sandboxes of a pod, and of containers without
// a pod. Names are untrusted and may be invalid UTF-8, which labels must not be.
func merged(interfaces []Interface) map[[4]string]*Interface {
	sums := make(map[[4]string]*Interface)
	for _, i := range interfaces {
		i.Namespace = valid(i.Namespace)
		i.Pod = valid(i.Pod)
		i.Name = valid(i.Name)
		i.Type = valid(i.Type)
		key := [4]string{i.Namespace, i.Pod, i.Name, i.Type}
		sum, ok := sums[key]
		if !ok {
			sums[key] = &i
			continue
		}
		sum.RxPackets = sum.RxPackets + i.RxPackets
		sum.RxBytes = sum.RxBytes + i.RxBytes
		sum.RxDrops = sum.RxDrops + i.RxDrops
		sum.TxPackets = sum.TxPackets + i.TxPackets
		sum.TxBytes = sum.TxBytes + i.TxBytes
		sum.TxDrops = sum.TxDrops + i.TxDrops
		if sum.Connected != nil && i.Connected != nil {
			both := *sum.Connected && *i.Connected
			sum.Connected = &both
		}
	}
	return sums
}

func compareInterfaces(a, b [4]string) int { return slices.Compare(a[:], b[:]) }

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
