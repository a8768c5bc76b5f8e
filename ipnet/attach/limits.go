package attach

import (
	"math"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// unlimited is the rate of a policer that only marks: no interface exceeds it.
var unlimited = pod.Rate{Kilobits: math.MaxUint32, Burst: math.MaxUint32}

// dataplaneLimits lists the policers of an interface, by which packets are marked, too.
func dataplaneLimits(p port) desired.Values {
	var v desired.Values
	limits := p.record.Limits
	if limits.DSCP != nil && limits.Egress.Kilobits == 0 {
		limits.Egress = unlimited
	}
	for _, one := range []struct {
		direction wire.PolicerDirection
		rate      pod.Rate
		dscp      *uint8
	}{
		{wire.PoliceInput, limits.Egress, limits.DSCP},
		{wire.PoliceOutput, limits.Ingress, nil},
	} {
		if one.rate.Kilobits == 0 {
			continue
		}
		v.Add(wire.PolicerKey(p.Object, one.direction), wire.Policer{
			Interface: p.Object, Direction: one.direction, Rate: one.rate.Kilobits, Burst: one.rate.Depth(),
			DSCP: one.dscp, Bridged: p.network.isBridged(), Bare: !p.HasMACs(), Trunk: len(p.record.VLANs) > 0,
		})
	}
	return v
}

// limitsOf returns the limits that have these policers.
func limitsOf(policers []wire.Policer) (l pod.Limits) {
	for _, p := range policers {
		rate := pod.Rate{Kilobits: p.Rate, Burst: p.Burst}
		switch {
		case p.Direction == wire.PoliceOutput:
			l.Ingress = rate
		case rate == unlimited:
			l.DSCP = p.DSCP
		default:
			l.Egress = rate
			l.DSCP = p.DSCP
		}
	}
	return l
}
