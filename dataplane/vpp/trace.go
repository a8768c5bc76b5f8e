package vpp

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/tracedump"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/wire"
)

// tracedAtOnce is the number of packets of an input node, on each thread, that are recorded before the trace is cleared
// and started again. Packets of other interfaces of the same type count, too.
const tracedAtOnce = 250

// inputNodes are the names of the graph nodes that receive packets of interfaces, by type. The first that a dataplane
// has is its node. Taps are a plugin with a node of its own since VPP 26.02, where virtio-input receives packets of
// other interfaces.
var inputNodes = map[wire.InterfaceType][]string{
	wire.TypeTap: {"tap-input", "virtio-input"}, wire.TypeAFPacket: {"af-packet-input"}, wire.TypeMemif: {
		"memif-input",
	},
}

// Trace records the paths of packets from certain interfaces. A dataplane has one buffer of traces for all its clients:
// only one Trace may be used at a time, and it ends a trace of VPP's command line.
type Trace struct {
	client  *Client
	sources map[Index]string // names of the traced interfaces
	nodes   []uint32
	seen    map[[2]uint32]bool // by thread and position, since the last start
	others  uint64

	Names map[string]string // of our interfaces: the dataplane's name -> the name of the vpp.interface
}

// TracedPath is the path of a packet, as text in the format of VPP's trace.
type TracedPath struct {
	Source string // name of the vpp.interface that received the packet
	Text   string
}

// OpenTrace starts the trace of interfaces, by the names of their vpp.interface. The error wraps ErrNoInterface if one
// is missing.
func (c *Client) OpenTrace(ctx context.Context, names []string) (*Trace, error) {
	p, err := c.ports(ctx)
	if err != nil {
		return nil, err
	}
	t := &Trace{client: c, sources: map[Index]string{}, Names: map[string]string{}}
	kinds := map[wire.InterfaceType]bool{}
	for _, name := range names {
		d := p.byName[name]
		if d == nil {
			return nil, fmt.Errorf("trace %s: %w", name, ErrNoInterface)
		}
		kind := p.value(d).Type
		if _, ok := inputNodes[kind]; !ok {
			return nil, fmt.Errorf("trace %s: its type has no input node", name)
		}
		t.sources[Index(d.SwIfIndex)] = name
		kinds[kind] = true
	}
	for name, d := range p.byName {
		t.Names[d.InterfaceName] = name
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		node, err := t.inputNode(ctx, kind)
		if err != nil {
			return nil, err
		}
		t.nodes = append(t.nodes, node)
	}
	return t, t.start(ctx)
}

// inputNode returns the index of the graph node that receives packets of interfaces of a type.
func (t *Trace) inputNode(ctx context.Context, kind wire.InterfaceType) (uint32, error) {
	for _, name := range inputNodes[kind] {
		reply := &vlib.GetNodeIndexReply{}
		r := ask("get_node_index "+name, &vlib.GetNodeIndex{NodeName: name}, reply).fineIf(api.NO_SUCH_NODE)
		if err := t.client.exchangeAll(ctx, []*request{r}); err != nil {
			return 0, err
		}
		if reply.Retval == 0 {
			return reply.NodeIndex, nil
		}
	}
	return 0, fmt.Errorf(
		"the dataplane has no graph node that receives packets of interfaces of type %s: none of %s exists", kind,
		strings.Join(inputNodes[kind], ", "))
}

// start clears the trace and records packets of all nodes.
func (t *Trace) start(ctx context.Context) error {
	t.seen = map[[2]uint32]bool{}
	var all []*request
	for i, node := range t.nodes {
		all = append(all, ask("trace_capture_packets", &tracedump.TraceCapturePackets{
			NodeIndex: node, MaxPackets: tracedAtOnce, PreCaptureClear: i == 0,
		}, &tracedump.TraceCapturePacketsReply{}))
	}
	return t.client.exchangeAll(ctx, all)
}

// Read returns the paths since the last Read, of each thread in order. If the trace was full, it is started again.
func (t *Trace) Read(ctx context.Context) ([]TracedPath, error) {
	r := askAll(
		&tracedump.TraceV2Dump{ThreadID: ^uint32(0), Max: uint32(tracedAtOnce * len(t.nodes)), ClearCache: true},
		&tracedump.TraceV2Details{})
	if err := t.client.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	var found []TracedPath
	full := false
	for _, d := range listOf[*tracedump.TraceV2Details](r) {
		key := [2]uint32{d.ThreadID, d.Position}
		full = full || d.Position >= tracedAtOnce-1
		if t.seen[key] {
			continue
		}
		t.seen[key] = true
		if source, ours := t.sources[receivedOn(d.TraceData)]; ours {
			found = append(found, TracedPath{Source: source, Text: strings.TrimRight(d.TraceData, "\x00\n")})
		} else {
			t.others++
		}
	}
	if full {
		return found, t.start(ctx)
	}
	return found, nil
}

// Others returns the number of packets of other interfaces so far.
func (t *Trace) Others() uint64 { return t.others }

// Close ends the trace.
func (t *Trace) Close(ctx context.Context) error {
	return t.client.exchangeAll(ctx, []*request{
		ask("trace_clear_capture", &tracedump.TraceClearCapture{}, &tracedump.TraceClearCaptureReply{}),
		askAll(&tracedump.TraceV2Dump{ThreadID: ^uint32(0), Position: ^uint32(0), ClearCache: true},
			&tracedump.TraceV2Details{}),
	})
}

// receivedIndex finds the index of the interface that received a packet: ethernet-input prints it. A memif in mode ip
// has no ethernet-input; its input node prints the hardware index, which is the same for interfaces without
// sub-interfaces.
var (
	receivedIndex  = regexp.MustCompile(`\bsw-if-index (\d+)`)
	receivedDevice = regexp.MustCompile(`\bhw_if_index (\d+)`)
)

func receivedOn(text string) Index {
	for _, pattern := range []*regexp.Regexp{receivedIndex, receivedDevice} {
		if m := pattern.FindStringSubmatch(text); m != nil {
			if n, err := strconv.ParseUint(m[1], 10, 32); err == nil {
				return Index(n)
			}
		}
	}
	return noIndex
}
