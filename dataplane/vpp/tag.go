package vpp

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	"github.com/weftnet/weft/wire"
)

const (
	// maxName leaves room for the hash: a tag has at most 63 bytes.
	maxName = 48
	// hashBits is what twelve hexadecimal digits hold.
	hashBits   = 48
	hashDigits = hashBits / 4
)

// interfaceHash sums up what an interface was made with and the dataplane cannot be trusted to report.
func interfaceHash(v wire.Interface) uint64 {
	h := fnv.New64a()
	switch v.Type {
	case wire.TypeAFPacket:
		fmt.Fprintf(h, "%s|%q|%q", v.Type, v.AFPacket.Link, v.AFPacket.On)
		addQueues(h, v.AFPacket.RxQueues, v.AFPacket.TxQueues)
	case wire.TypeMemif:
		m := v.Memif
		// Anybody who may ask the dataplane sees the tag. 48 bits that have no key say nothing of a secret of 23 random
		// characters, for which many millions of others have the same sum.
		fmt.Fprintf(h, "%s|%q|%d|%q|%q|%d|%d|%d|%d", v.Type, m.Socket, m.ID, m.Mode, string(m.Secret), m.RingSize, m.BufferSize, m.RxQueues, m.TxQueues)
	case wire.TypeVXLAN:
		fmt.Fprintf(h, "%s|%s|%s|%d|%d", v.Type, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI, portOf(v.VXLAN))
		if v.VXLAN.Table != 0 { // tunnels of the dataplane's own table keep the hash of earlier versions
			fmt.Fprintf(h, "|%d", v.VXLAN.Table)
		}
	default:
		fmt.Fprintf(h, "%s|%q|%q|%s|%d", v.Type, v.Tap.Namespace, v.Tap.Name, v.Tap.MAC, v.Tap.MTU)
		addQueues(h, v.Tap.Queues, v.Tap.Queues)
	}
	if v.GSO {
		fmt.Fprint(h, "|gso")
	}
	return folded(h.Sum64())
}

// addQueues leaves the sum of a link with one queue each way what it was before there were more.
func addQueues(h io.Writer, rx, tx int) {
	if rx > 1 || tx > 1 {
		fmt.Fprintf(h, "|%d|%d", queuesOf(rx), queuesOf(tx))
	}
}

// folded is a sum as a tag has room for.
func folded(sum uint64) uint64 { return (sum>>hashBits ^ sum) & (1<<hashBits - 1) }

// interfaceTag is what the dataplane keeps for us of an interface.
func interfaceTag(name string, v wire.Interface) string { return newTag(name, interfaceHash(v)) }

// newTag holds a name and a hash.
func newTag(name string, hash uint64) string { return fmt.Sprintf("%s#%0*x", name, hashDigits, hash) }

// parseTag is the inverse of newTag; ok is false for a foreign tag.
func parseTag(tag string) (name string, hash uint64, ok bool) {
	i := strings.LastIndexByte(tag, '#')
	if i <= 0 || len(tag)-i-1 != hashDigits {
		return "", 0, false
	}
	hash, err := strconv.ParseUint(tag[i+1:], 16, 64)
	return tag[:i], hash, err == nil
}
