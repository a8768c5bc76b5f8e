package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what is as it is at a scrape. What is nil is not told of.
type State struct {
	QueueDepth  int
	DeleteQueue *int
	Connected   bool                      // to the dataplane
	Conditions  map[string]bool           // of the node, as weftctl status says them
	Objects     map[string]map[string]int // by kind and phase
	Addresses   map[string]Addresses      // by pool

	Devices       map[string]int    // by state
	Registrations map[string]uint64 // with kubelet, by result

	Rejections  int // parts of other nodes' announcements that are not used
	Quarantined int // attachments that are withheld from the dataplane

	EventsDropped *uint64 // on pods, that were never written to the API server

	Interfaces []Interface
	Errors     []Error
}

// Error is an error counter of a node of the dataplane's graph.
type Error struct {
	Node, Reason string
	Count        uint64
}

// Addresses are the numbers of a pool.
type Addresses struct{ Used, Leased, Cooling, Free uint64 }

// Interface is an interface of a pod, with what passed through it as the pod sees it: received is what came to the pod.
type Interface struct {
	Namespace, Pod string // of Kubernetes; "": the container is no pod
	Name           string // in the pod
	Type           string

	RxPackets, RxBytes, RxDrops uint64
	TxPackets, TxBytes, TxDrops uint64
	Connected                   *bool // of a memif: whether the pod's program is there
}

var (
	ofInterface = []string{"namespace", "pod", "interface", "type"}

	queueDepth    = describe("event_queue_depth", "Events that wait to be handled.")
	deleteQueue   = describe("delete_queue_length", "Deletions that the CNI plugin left for the agent.")
	connected     = describe("dataplane_connected", "Whether the dataplane is connected, 1 or 0.")
	conditions    = describe("condition", "What the node's health depends on, 1 where it is as it should be, else 0.", "condition")
	objects       = describe("objects", "Objects of the machine, by where they stand.", "kind", "phase")
	addresses     = describe("addresses", "Addresses of a pool.", "pool", "state")
	devices       = describe("devices", "Memifs that kubelet can give to pods, by what became of them.", "state")
	registrations = describe("kubelet_registrations_total", "Tries to register with kubelet.", "result")
	eventsDropped = describe("pod_events_dropped_total", "Events on pods that were never written to the API server.")
	quarantined   = describe("quarantined_attachments", "Attachments that are withheld from the dataplane, because it died while they were replayed.")
	rejections    = describe("rejected_announcements", "Parts of other nodes' announcements that are not used, because nothing grants them to the node.")
	rxPackets     = describe("interface_rx_packets_total", "Packets that a pod's interface received.", ofInterface...)
	rxBytes       = describe("interface_rx_bytes_total", "Bytes that a pod's interface received.", ofInterface...)
	rxDrops       = describe("interface_rx_drops_total", "Packets for a pod's interface that it did not take.", ofInterface...)
	txPackets     = describe("interface_tx_packets_total", "Packets that a pod's interface sent.", ofInterface...)
	txBytes       = describe("interface_tx_bytes_total", "Bytes that a pod's interface sent.", ofInterface...)
	txDrops       = describe("interface_tx_drops_total", "Packets from a pod's interface that the dataplane dropped.", ofInterface...)
	graphErrors   = describe("dataplane_errors_total", "Packets that a node of the dataplane's graph dropped or counted for a reason.", "node", "reason")
	connection    = describe("memif_connected", "Whether a pod's program has connected its memif, 1 or 0.", ofInterface[:3]...)
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

// reading makes metrics of what was read for one scrape.
type reading struct{ State }

// Describe says nothing, for what there is differs from one reading to the next.
func (r reading) Describe(chan<- *prometheus.Desc) {}

// Collect gives what was read.
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

// sink is where a reading's metrics go. One that cannot be made is left out, so that the others are told.
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

// merged adds up interfaces whose labels are the same: those of two sandboxes of one pod, and of containers that are no
// pods. Names are text of others, and labels are UTF-8.
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
