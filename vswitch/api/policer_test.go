package api

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"
)

func policerConfig(kilobits uint32) policer_types.PolicerConfig {
	return policer_types.PolicerConfig{
		Cir: kilobits, Cb: 80_000,
		ConformAction: policer_types.Sse2QosAction{Type: policer_types.SSE2_QOS_ACTION_API_TRANSMIT},
	}
}

// The messages with names are in test/conformance.
func TestPolicersAreChangedByIndex(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	rpc := policer.NewServiceClient(a.conn)
	loop := mustInvoke(t, a, a.ifs.CreateLoopback, &interfaces.CreateLoopback{}).SwIfIndex
	isPoliced := func() bool {
		return mustInvoke(t, a, feature.NewServiceClient(a.conn).FeatureIsEnabled, &feature.FeatureIsEnabled{
			ArcName: "ip4-output", FeatureName: "policer-output", SwIfIndex: loop,
		}).IsEnabled
	}
	rate := func() uint32 {
		s, err := rpc.PolicerDump(a.context, &policer.PolicerDump{MatchNameValid: true, MatchName: "blue"})
		all := collect[*policer.PolicerDetails](t, s, err)
		if len(all) != 1 {
			return 0
		}
		return all[0].Cir
	}
	blue := mustInvoke(t, a, rpc.PolicerAdd, &policer.PolicerAdd{Name: "blue", Infos: policerConfig(1000)}).PolicerIndex
	mustInvoke(t, a, rpc.PolicerOutputV2, &policer.PolicerOutputV2{PolicerIndex: blue, SwIfIndex: loop, Apply: true})
	mustInvoke(t, a, rpc.PolicerUpdate, &policer.PolicerUpdate{PolicerIndex: blue, Infos: policerConfig(2000)})
	mustInvoke(t, a, rpc.PolicerReset, &policer.PolicerReset{PolicerIndex: blue})
	if got := rate(); got != 2000 || !isPoliced() {
		t.Errorf("the rate is %d, applied: %v", got, isPoliced())
	}
	packets := policerConfig(1000)
	packets.RateType = policer_types.SSE2_QOS_RATE_API_PPS
	marks := policerConfig(1000)
	marks.ConformAction.Dscp = 64
	checkRefusals(t, map[string]refusal{
		"no policer": {
			calling(t, a, rpc.PolicerInputV2, &policer.PolicerInputV2{PolicerIndex: 7, SwIfIndex: loop, Apply: true}),
			api.NO_SUCH_ENTRY,
		},
		"no interface": {
			calling(t, a, rpc.PolicerInputV2, &policer.PolicerInputV2{PolicerIndex: blue, SwIfIndex: noInterface}),
			api.INVALID_SW_IF_INDEX,
		},
		"an update of no policer": {
			calling(t, a, rpc.PolicerUpdate, &policer.PolicerUpdate{PolicerIndex: 7, Infos: policerConfig(1)}),
			api.NO_SUCH_ENTRY,
		},
		"an update without a rate": {
			calling(t, a, rpc.PolicerUpdate, &policer.PolicerUpdate{PolicerIndex: blue, Infos: policerConfig(0)}),
			api.INVALID_VALUE,
		},
		"a reset of no policer": {calling(t, a, rpc.PolicerReset, &policer.PolicerReset{PolicerIndex: 7}), api.NO_SUCH_ENTRY},
		"no policer to delete":  {calling(t, a, rpc.PolicerDel, &policer.PolicerDel{PolicerIndex: 7}), api.NO_SUCH_ENTRY},
		"packets per second": {
			calling(t, a, rpc.PolicerAdd, &policer.PolicerAdd{Name: "red", Infos: packets}), api.UNIMPLEMENTED,
		},
		"a DSCP of seven bits": {
			calling(t, a, rpc.PolicerAdd, &policer.PolicerAdd{Name: "red", Infos: marks}), api.INVALID_VALUE,
		},
		"another feature": {
			calling(t, a, feature.NewServiceClient(a.conn).FeatureIsEnabled, &feature.FeatureIsEnabled{
				ArcName: "ip4-unicast", FeatureName: "policer-input", SwIfIndex: loop,
			}), api.UNIMPLEMENTED,
		},
	})
	mustInvoke(t, a, rpc.PolicerDel, &policer.PolicerDel{PolicerIndex: blue})
	if rate() != 0 || isPoliced() {
		t.Error("the deleted policer is still applied")
	}
}
