package ipnet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/wire"
)

// Config is what a [Network] is made of. Only Pools are needed.
type Config struct {
	Pools       []ipam.Pool      // a pod gets an address of each family that has pools
	CoolDown    time.Duration    // of released addresses; default 30 s, negative: none
	MTU         int              // of all interfaces, bytes; default 1500
	HostLink    string           // the name that the link to the dataplane has on the node; default weft0
	PodVRFTable uint32           // table of the pods' VRF; default 1
	Now         func() time.Time // default time.Now
	Log         *slog.Logger     // default: none
}

func (c Config) withDefaults() Config {
	c.MTU = cmp.Or(c.MTU, 1500)
	c.HostLink = cmp.Or(c.HostLink, "weft0")
	c.PodVRFTable = cmp.Or(c.PodVRFTable, 1)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Pools) == 0 {
		return errors.New("at least one pool of addresses is needed")
	}
	least := 576 // what every IPv4 host must take
	if slices.Contains(c.families(), wire.IP6) {
		least = 1280 // below that the kernel takes IPv6 off the link
	}
	if c.MTU < least || c.MTU > 65535 {
		return fmt.Errorf("MTU %d is not within %d to 65535", c.MTU, least)
	}
	if len(c.HostLink) > 15 || strings.ContainsAny(c.HostLink, "/: \t\n") || c.HostLink == "." || c.HostLink == ".." {
		return fmt.Errorf("host link %q is not a name for a link of Linux", c.HostLink)
	}
	return nil
}

// families are those that have pools, IPv4 first.
func (c Config) families() []wire.Family {
	var families []wire.Family
	for _, f := range []wire.Family{wire.IP4, wire.IP6} {
		if slices.ContainsFunc(c.Pools, func(p ipam.Pool) bool { return wire.FamilyOf(p.Prefix.Addr()) == f }) {
			families = append(families, f)
		}
	}
	return families
}
