package vpp

import (
	"fmt"
	"hash/fnv"
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
	if v.Type == wire.TypeAFPacket {
		fmt.Fprintf(h, "%s|%q|%q", v.Type, v.AFPacket.Link, v.AFPacket.On)
	} else {
		fmt.Fprintf(h, "%s|%q|%q|%s|%d", v.Type, v.Tap.Namespace, v.Tap.Name, v.Tap.MAC, v.Tap.MTU)
	}
	return folded(h.Sum64())
}

// folded is a sum as a tag has room for.
func folded(sum uint64) uint64 { return (sum>>hashBits ^ sum) & (1<<hashBits - 1) }

// interfaceTag is what the dataplane keeps for us of an interface.
func interfaceTag(name string, v wire.Interface) string { return newTag(name, interfaceHash(v)) }

// newTag holds a name and a hash.
func newTag(name string, hash uint64) string { return fmt.Sprintf("%s#%0*x", name, hashDigits, hash) }

// parseTag is the inverse of newTag; ok is false for a tag of somebody else.
func parseTag(tag string) (name string, hash uint64, ok bool) {
	i := strings.LastIndexByte(tag, '#')
	if i <= 0 || len(tag)-i-1 != hashDigits {
		return "", 0, false
	}
	hash, err := strconv.ParseUint(tag[i+1:], 16, 64)
	return tag[:i], hash, err == nil
}
