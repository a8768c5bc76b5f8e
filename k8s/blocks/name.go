package blocks

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Name returns the name of the object of a block. It is unique: names of IPv4 have four labels, names of IPv6 one, after the label of a network.
func Name(network string, block netip.Prefix) string {
	address := block.Addr().StringExpanded()
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(address, ":", "-"), block.Bits())
	if network == "" {
		return name
	}
	return network + "." + name
}

// Parse returns the prefix of a block's object; the error names the object.
func Parse(b *v1.IPBlock) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(string(b.Spec.CIDR))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("block %s: %w", b.Name, err)
	}
	if want := Name(string(b.Spec.Network), prefix); prefix != prefix.Masked() || b.Name != want {
		return netip.Prefix{}, fmt.Errorf("block %s: its cidr is %s, whose block is named %s", b.Name, prefix, want)
	}
	return prefix, nil
}
