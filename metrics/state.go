package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// State is the state at a scrape. Nil fields have no metrics.
type State struct {
	QueueDepth  int
	DeleteQueue *int
	Connected   bool                      // to the dataplane
	Conditions  map[string]bool           // by name, as in weftctl status
	Objects     map[string]map[string]int // by kind and phase
	Addresses   map[string]Addresses      // by pool

	Devices       map[string]int    // by state
	Registrations map[string]uint64 // attempts to register with kubelet, by result

	Rejections  int // number of rejected parts of other nodes' announcements
	Quarantined int // number of quarantined attachments

	EventsDropped *uint64 // Events on pods that were not written to the API server

	Interfaces []Interface
	Errors     []Error
}

// Error is an error counter of a graph node of the dataplane.
type Error struct {
	Node, Reason string
	Count        uint64
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
	connected     = describe("dataplane_connected", "Whether the dataplane is connected, 1 or 0.")
	conditions    = describe("condition", "Conditions of the node, 1 if the condition holds, else 0.", "condition")
	objects       = describe("objects", "Objects by kind and phase.", "kind", "phase")
	addresses     = describe("addresses", "Addresses of pools by state.", "pool", "state")
	devices       = describe("devices", "Memif devices by state.", "state")
	registrations = describe("kubelet_registrations_total", "Attempts to register with kubelet.", "result")
	eventsDropped = describe("pod_events_dropped_total", "Events on pods that were not written to the API server.")
	quarantined   = describe("quarantined_attachments", "Attachments that are not replayed because they crashed the dataplane.")
	rejections    = describe("rejected_announcements", "Parts of other nodes' announcements that are rejected because they are not granted to the node.")
	rxPackets     = describe("interface_rx_packets_total", "Packets that a pod's interface received.", ofInterface...)
	rxBytes       = describe("interface_rx_bytes_total", "Bytes that a pod's interface received.", ofInterface...)
	rxDrops       = describe("interface_rx_drops_total", "Packets to a pod's interface that it did not accept.", ofInterface...)
	txPackets     = describe("interface_tx_packets_total", "Packets that a pod's interface sent.", ofInterface...)
	txBytes       = describe("interface_tx_bytes_total", "Bytes that a pod's interface sent.", ofInterface...)
	txDrops       = describe("interface_tx_drops_total", "Packets from a pod's interface that the dataplane dropped.", ofInterface...)
	graphErrors   = describe("dataplane_errors_total", "Packets that a graph node of the dataplane dropped or counted, by reason.", "node", "reason")
	connection    = describe("memif_connected", "Whether a pod's program is connected to its memif, 1 or 0.", ofInterface[:3]...)
)

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
	for name, holds := range r.Conditions {
		out.gauge(conditions, oneIf(holds), name)
	}
	for kind, phases := range r.Objects {
		for phase, n := range phases {
			out.gauge(objects, float64(n), kind, phase)
		}
	}
	for pool, a := range r.Addresses {
		out.gauge(addresses, float64(a.Used), pool, "used")
		out.gauge(addresses, float64(a.Leased), pool, "leased")
		out.gauge(addresses, float64(a.Cooling), pool, "cooling")
		out.gauge(addresses, float64(a.Free), pool, "free")
	}
	for state, n := range r.Devices {
		out.gauge(devices, float64(n), state)
	}
	for result, n := range r.Registrations {
		out.counter(registrations, n, result)
	}
	out.gauge(quarantined, float64(r.Quarantined))
	out.gauge(rejections, float64(r.Rejections))
	if r.EventsDropped != nil {
		out.counter(eventsDropped, *r.EventsDropped)
	}
	for _, i := range merged(r.Interfaces) {
		out.ofInterface(i)
	}
	for _, e := range r.Errors {
		out.counter(graphErrors, e.Count, valid(e.Node), valid(e.Reason))
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

// merged adds the counters of interfaces with the same labels: of several sandboxes of a pod, and of containers without a pod. Names
// are untrusted and may be invalid UTF-8, which labels must not be.
func merged(interfaces []Interface) map[[4]string]*Interface {
	sums := make(map[[4]string]*Interface)
	for _, i := range interfaces {
		i.Namespace, i.Pod, i.Name = valid(i.Namespace), valid(i.Pod), valid(i.Name)
		key := [4]string{i.Namespace, i.Pod, i.Name, i.Type}
		sum, ok := sums[key]
		if !ok {
			sums[key] = &i
			continue
		}
		sum.RxPackets, sum.RxBytes, sum.RxDrops = sum.RxPackets+i.RxPackets, sum.RxBytes+i.RxBytes, sum.RxDrops+i.RxDrops
		sum.TxPackets, sum.TxBytes, sum.TxDrops = sum.TxPackets+i.TxPackets, sum.TxBytes+i.TxBytes, sum.TxDrops+i.TxDrops
		if sum.Connected != nil && i.Connected != nil {
			both := *sum.Connected && *i.Connected
			sum.Connected = &both
		}
	}
	return sums
}

func valid(text string) string { return strings.ToValidUTF8(text, "?") }

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
