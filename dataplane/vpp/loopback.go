package vpp

import (
	"hash/fnv"
	"strconv"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/weftnet/weft/wire"
)

// Loopbacks of ours have numbers from firstInstance to maxInstance (VPP's limit): one that has no tag yet is
// recognised by its number, however we died.
const (
	firstInstance = 8192
	maxInstance   = 16383
)

// instanceOf is the number that a loopback's name leads to; the next one that is not taken is its own.
func instanceOf(name string, taken map[uint32]bool) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	const span = maxInstance - firstInstance + 1
	start := h.Sum32() % span
	for n := range uint32(span) {
		if instance := firstInstance + (start+n)%span; !taken[instance] {
			return instance
		}
	}
	return firstInstance + start // all taken: the dataplane will say so
}

// loopbackInstance is the number of a loopback; false for another interface.
func loopbackInstance(d *interfaces.SwInterfaceDetails) (uint32, bool) {
	digits, ok := strings.CutPrefix(d.InterfaceName, "loop")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// newLoopback makes the request for a loopback and takes its number.
func newLoopback(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	return ask("create_loopback_instance "+name, &interfaces.CreateLoopbackInstance{
		MacAddress: [6]byte(v.MAC), IsSpecified: true, UserInstance: instance,
	}, &interfaces.CreateLoopbackInstanceReply{})
}

// takenInstances are the numbers of all interfaces of a kind.
func (p *ports) takenInstances(of func(*interfaces.SwInterfaceDetails) (uint32, bool)) map[uint32]bool {
	taken := map[uint32]bool{}
	for _, d := range p.list {
		if n, ok := of(d); ok {
			taken[n] = true
		}
	}
	return taken
}
