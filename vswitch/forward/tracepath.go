package forward

import (
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
	"github.com/weftnet/weft/vswitch/slow"
)

// InputNode is the graph node of VPP that receives from a kind of port.
type InputNode uint8

// The input nodes.
const (
	VirtioInput InputNode = iota
	AFPacketInput
	MemifInput
	InputNodes
)

var inputNames = [InputNodes]string{"virtio-input", "af-packet-input", "memif-input"}

// String returns VPP's name of the node.
func (n InputNode) String() string { return inputNames[n] }

func inputNodeOf(a *attachedPort) InputNode {
	switch a.port.(type) {
	case *port.AFPacket:
		return AFPacketInput
	case *port.Memif:
		return MemifInput
	}
	return VirtioInput
}

// MaxTraced limits the frames that a worker records until ClearTrace.
const MaxTraced = 1024

// tracing records the paths of frames on one worker. Control allocates it, so that the worker does not.
//
//	nil (off) --StartTrace--> recording --records full--> full --ClearTrace--> nil
type tracing struct {
	left    [InputNodes]int
	records []tracePath // with the capacity of all records
}

// wants reports whether frames of a port are recorded.
func (t *tracing) wants(a *attachedPort) bool {
	return t.left[inputNodeOf(a)] > 0 && len(t.records) < cap(t.records)
}

// begin starts the record of a frame; nil if the records are full.
func (t *tracing) begin(node InputNode, at time.Duration, in uint32, b *frame.Buffer) *tracePath {
	if t.left[node] == 0 || len(t.records) == cap(t.records) {
		return nil
	}
	t.left[node]--
	t.records = t.records[:len(t.records)+1]
	p := &t.records[len(t.records)-1]
	*p = tracePath{at: at, node: node, in: in, length: b.Len(), gso: b.Virtio.GSOSize}
	p.head = p.room[:b.CopyHead(p.room[:])]
	return p
}

// maxSteps limits the steps of a path: a frame passes at most a bridge domain, a BVI, a tunnel and as many ports as a
// flood has.
const maxSteps = 32

// tracePath is the path of a frame.
type tracePath struct {
	at     time.Duration // since the worker's start
	node   InputNode
	in     uint32
	length int
	gso    uint16
	head   []byte // the start of the frame as received; in room
	room   [frame.HeadLen]byte
	steps  [maxSteps]traceStep
	n      int
	more   bool // there were more steps
}

type stepKind uint8

const (
	stepMACIP         stepKind = iota + 1 // permitted
	stepACL                               // permitted; acl and number: the rule, output
	stepDenied                            // by the rule of acl and number, or by none
	stepSession                           // permitted by a session; output
	stepSessionDenied                     // of a TCP connection that the lists no longer permit; output
	stepSessionsFull                      // no room for the session of a packet that the rule of acl and number permits
	stepSub                               // iface: sub-interface
	stepBridge                            // number: bridge domain, mac: destination
	stepMember                            // iface: member
	stepFlood                             // number: members of the bridge domain
	stepBVI                               // iface
	stepLookup                            // number: table, iface: output, addr: next hop
	stepTunnelLookup                      // iface: output, addr: next hop
	stepRewrite                           // iface: output, mac: neighbour
	stepEncap                             // iface: tunnel
	stepDecap                             // iface: tunnel
	stepPolicer                           // iface, output; number: conforming packets of a train
	stepKept                              // a fragment waits for the others of its packet
	stepSend                              // iface
	stepPunt                              // number: slow.Reason
	stepDrop                              // number: reason
)

// traceStep is a step of the packet path with a frame; kind says which fields are used.
type traceStep struct {
	kind   stepKind
	mac    frame.MAC
	iface  uint32
	number uint32
	addr   netip.Addr
	acl    *ACLFilter
	output bool // an output ACL or policer decided
}

// add appends a step. It is called on a path only, which is nil unless a frame is traced.
func (p *tracePath) add(s traceStep) {
	if p.n == len(p.steps) {
		p.more = true
		return
	}
	p.steps[p.n] = s
	p.n++
}

// ending adds the end of a path that a verdict decides.
func (p *tracePath) ending(d verdict) {
	if d.punt != 0 {
		p.add(traceStep{kind: stepPunt, number: uint32(d.punt)})
	}
	if d.drop != noDrop {
		p.add(traceStep{kind: stepDrop, number: uint32(d.drop)})
	}
}

// lookup adds the result of a route lookup.
func (p *tracePath) lookup(kind stepKind, table uint32, out *iface, target netip.Addr) {
	s := traceStep{kind: kind, number: table, iface: NoInterface, addr: target}
	if out != nil {
		s.iface = out.index
	}
	p.add(s)
}

// tracedVector is vector while frames of the port are traced: all frames take the full path. It returns how many
// buffers the caller may reuse, none.
func (w *worker) tracedVector(from *rxQueue, in *iface, v []*frame.Buffer) int {
	var tally vectorTally
	node := inputNodeOf(from.port)
	now := w.stopwatch()
	for _, b := range v {
		line := from.trace.begin(b)
		tally.bytes += uint64(b.Len())
		if w.path = w.tracing.begin(node, now, from.port.index, b); w.path != nil && in != nil {
			w.traceFilters(in, b)
		}
		w.detail = 0
		var d verdict
		if in != nil && in.policeIn != nil && !w.police(in.policeIn, in, b, dropPolicerInput) {
			d.drop = dropPolicerInput
		} else {
			d = w.egress(b, w.input(in, b))
		}
		line.result = d
		line.detail = w.detail
		tally.add(b, d)
		w.apply(in, b, d)
		w.path = nil
	}
	if in != nil {
		tally.publish(in.counters[w.id], len(v))
	}
	w.tx.flush()
	return 0
}

// traceFilters adds the anti-spoofing filter if the frame passes it; input adds the drop, and the decision of the ACLs.
func (w *worker) traceFilters(in *iface, b *frame.Buffer) {
	if in.macip != nil && in.macip.permits(b.Bytes()) {
		w.path.add(traceStep{kind: stepMACIP})
	}
}

// StartTrace makes each worker record the paths of the next n frames of an input node. All nodes share MaxTraced
// records. Recorded paths stay until ClearTrace.
func (t *traces) StartTrace(node InputNode, n int) {
	for _, w := range t.workers {
		fresh := &tracing{records: make([]tracePath, 0, MaxTraced)}
		w.requests.post(func(w *worker) {
			if w.tracing == nil {
				w.tracing = fresh
			}
			w.tracing.left[node] = n
		})
	}
}

// ClearTrace ends the recording and forgets the paths.
func (t *traces) ClearTrace() {
	for _, w := range t.workers {
		w.requests.post(func(w *worker) { w.tracing = nil })
	}
}

// TracePaths returns the recorded paths of each worker, oldest first, as text in VPP's format. nameOf returns the name
// of an interface.
func (t *traces) TracePaths(nameOf func(index uint32) string) [][]string {
	all := make([][]string, len(t.workers))
	for i, w := range t.workers {
		var paths []tracePath
		w.requests.post(func(w *worker) {
			if w.tracing != nil {
				paths = append(paths, w.tracing.records...)
			}
		})
		for n := range paths {
			all[i] = append(all[i], paths[n].format(nameOf))
		}
	}
	return all
}

// tracedPunts are the graph nodes of punted packets.
var tracedPunts = map[slow.Reason]string{
	slow.ARP: "arp-input", slow.Discovery: "ip6-icmp-input", slow.Received: "ip-local", slow.Unresolved: "ip-neighbor",
	slow.Expired: "ip-icmp-error", slow.NoRoute: "ip-icmp-error", slow.HostUnreached: "ip-icmp-error",
	slow.RouteUnreachable: "ip-icmp-error",
	slow.Prohibited:       "ip-icmp-error", slow.TooBig: "ip-icmp-error",
}
