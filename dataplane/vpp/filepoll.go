package vpp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// A VPP thread waits for its interfaces by epoll_wait, takes 16 events at most, and waits again at once when there were
// 16 (vlib_file_poll in src/vlib/file.c, every release up to 26.06). The packet socket of an af_packet queue stays
// readable until a node has read it, and no node runs in between: a thread with packets on 16 of them never leaves the
// loop, and VPP neither forwards nor replies any longer. Other interfaces consume their event at once.

// MaxVethsPerThread is the highest number of receive queues of type af_packet with which a VPP thread is safe.
const MaxVethsPerThread = 15

// ErrVeths is wrapped in the refusal of an interface of type af_packet that could hang VPP.
var ErrVeths = errors.New("VPP has no room for another veth")

// neededOfVPP are messages that the agent sends to VPP only.
var neededOfVPP = []api.Message{
	&vlib.ShowThreads{}, &vlib.ShowThreadsReply{},
	&interfaces.SwInterfaceRxPlacementDump{}, &interfaces.SwInterfaceRxPlacementDetails{},
	&interfaces.SwInterfaceSetRxPlacement{}, &interfaces.SwInterfaceSetRxPlacementReply{},
}

// neededBy returns the messages that a dataplane of that version must have.
func neededBy(version string) []api.Message {
	if _, isVPP := releaseOf(version); isVPP {
		return slices.Concat(Needed, neededOfVPP)
	}
	return Needed
}

type queue struct {
	port   Index
	number uint32
}

// pollers are VPP's threads that read interfaces, with their af_packet queues.
type pollers struct {
	queues [][]queue
	main   bool // there is only the main thread
	limit  int
}

type exchangeAll func(context.Context, []*request) error

// pollers returns nil if the dataplane is not VPP or has no limit.
func (o Options) pollers(ctx context.Context, version string, exchange exchangeAll) (*pollers, error) {
	if _, isVPP := releaseOf(version); !isVPP || o.AFPacket.PerThread < 0 {
		return nil, nil
	}
	threads := ask("show_threads", &vlib.ShowThreads{}, &vlib.ShowThreadsReply{})
	links := askAll(&af_packet.AfPacketDump{}, &af_packet.AfPacketDetails{})
	placed := askAll(&interfaces.SwInterfaceRxPlacementDump{SwIfIndex: noIndex.api()},
		&interfaces.SwInterfaceRxPlacementDetails{})
	if err := exchange(ctx, []*request{threads, links, placed}); err != nil {
		return nil, err
	}
	return newPollers(threads.reply.(*vlib.ShowThreadsReply), listOf[*af_packet.AfPacketDetails](links),
		listOf[*interfaces.SwInterfaceRxPlacementDetails](placed), o.AFPacket.PerThread), nil
}

// spreadQueues moves queues away from workers with more than they can read.
func (o Options) spreadQueues(ctx context.Context, version string, exchange exchangeAll) error {
	p, err := o.pollers(ctx, version, exchange)
	if err != nil || p == nil {
		return err
	}
	var requests []*request
	for _, m := range p.overload() {
		requests = append(requests,
			ask(fmt.Sprintf("sw_interface_set_rx_placement of queue %d of interface %d", m.number, m.port),
				&interfaces.SwInterfaceSetRxPlacement{
					SwIfIndex: m.port.api(),
					QueueID:   m.number,
					WorkerID:  uint32(m.to),
				},
				&interfaces.SwInterfaceSetRxPlacementReply{}))
	}
	return exchange(ctx, requests)
}

// newPollers groups queues by thread. VPP numbers the workers from 1, and the main thread reads only if there are no
// workers.
func newPollers(
	threads *vlib.ShowThreadsReply,
	links []*af_packet.AfPacketDetails,
	placed []*interfaces.SwInterfaceRxPlacementDetails,
	limit int,
) *pollers {
	p := &pollers{limit: limit}
	for _, t := range threads.ThreadData {
		if t.Type == "workers" {
			p.queues = append(p.queues, nil)
		}
	}
	first := uint32(1)
	if len(p.queues) == 0 {
		p.queues = make([][]queue, 1)
		p.main = true
		first = 0
	}
	isLink := map[Index]bool{}
	for _, l := range links {
		isLink[Index(l.SwIfIndex)] = true
	}
	for _, q := range placed {
		port := Index(q.SwIfIndex)
		if at := int(q.WorkerID) - int(first); isLink[port] && at >= 0 && at < len(p.queues) {
			p.queues[at] = append(p.queues[at], queue{port, q.QueueID})
		}
	}
	return p
}

func (p *pollers) free() int {
	n := 0
	for _, q := range p.queues {
		n += max(0, p.limit-len(q))
	}
	return n
}

func (p *pollers) refusal() error {
	readers := fmt.Sprintf("each of its %d workers", len(p.queues))
	if p.main {
		readers = "its only thread"
	} else if len(p.queues) == 1 {
		readers = "its only worker"
	}
	return fmt.Errorf(
		"%w: %s reads at most %d receive queues of veths (dataplane.vethsPerThread) because more can hang VPP; use taps or memifs, or give VPP more workers",
		ErrVeths, readers, p.limit)
}

type move struct {
	queue
	to int
}

// overload lists moves after which no thread has more queues than it can read. VPP assigns new queues round robin.
func (p *pollers) overload() []move {
	var moves []move
	for from := range p.queues {
		for len(p.queues[from]) > p.limit {
			to := p.leastLoaded()
			if len(p.queues[to]) >= p.limit {
				return moves
			}
			last := len(p.queues[from]) - 1
			q := p.queues[from][last]
			p.queues[from] = p.queues[from][:last]
			p.queues[to] = append(p.queues[to], q)
			moves = append(moves, move{q, to})
		}
	}
	return moves
}

func (p *pollers) leastLoaded() int {
	least := 0
	for i := range p.queues {
		if len(p.queues[i]) < len(p.queues[least]) {
			least = i
		}
	}
	return least
}

// admitVeths refuses interfaces of type af_packet that VPP has no room for. It returns nil if the batch has no such
// type or the dataplane has no limit.
func (b ifaces) admitVeths(ctx context.Context, batch []interfaceItem) *pollers {
	items := afPacketItems(batch)
	if len(items) == 0 {
		return nil
	}
	p, err := b.c.options.pollers(ctx, b.c.Version(), b.c.exchangeAll)
	if p == nil && err == nil {
		return nil
	}
	free := 0
	if err == nil {
		free = p.free()
		err = p.refusal()
	}
	admit(items, b.c.options.AFPacket.NodeLink, free, err)
	return p
}

// admit refuses items without room. The node's own links come first: without them the node cannot serve pods.
func admit(items []*interfaceItem, isNodeLink func(name string) bool, free int, refusal error) {
	for _, nodeLinks := range []bool{true, false} {
		for _, it := range items {
			if isNodeLink(it.Name) != nodeLinks {
				continue
			}
			n := int(queuesOf(it.Want.AFPacket.RxQueues))
			if n > free {
				it.Err = kvscheduler.Refused(refusal)
				continue
			}
			free -= n
		}
	}
}

func afPacketItems(batch []interfaceItem) (items []*interfaceItem) {
	for i := range batch {
		if batch[i].Want.Type == wire.TypeAFPacket {
			items = append(items, &batch[i])
		}
	}
	return items
}
