package api

import (
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"

	"github.com/weftnet/weft/vswitch/model"
)

// policerHandlers serve policers, and the question whether an interface has one. Policers are not bound to workers,
// which share their buckets.
var policerHandlers = []handler{
	call(func(m *model.Model, r *policer.PolicerAddDel) (*policer.PolicerAddDelReply, error) {
		if r.IsAdd {
			index, err := m.Policers.Add(policerOfRequest(r))
			return &policer.PolicerAddDelReply{PolicerIndex: index}, err
		}
		reply := &policer.PolicerAddDelReply{PolicerIndex: model.NoIndex}
		index, err := m.Policers.Named(r.Name)
		if err != nil {
			return reply, err
		}
		return reply, m.Policers.Delete(index)
	}),
	call(func(m *model.Model, r *policer.PolicerAdd) (*policer.PolicerAddReply, error) {
		index, err := m.Policers.Add(policerOf(r.Name, r.Infos))
		return &policer.PolicerAddReply{PolicerIndex: index}, err
	}),
	set[policer.PolicerDelReply](func(m *model.Model, r *policer.PolicerDel) error {
		return m.Policers.Delete(r.PolicerIndex)
	}),
	set[policer.PolicerUpdateReply](func(m *model.Model, r *policer.PolicerUpdate) error {
		return m.Policers.Update(r.PolicerIndex, policerOf("", r.Infos))
	}),
	set[policer.PolicerResetReply](func(m *model.Model, r *policer.PolicerReset) error {
		return m.Policers.Reset(r.PolicerIndex)
	}),
	set[policer.PolicerInputReply](func(m *model.Model, r *policer.PolicerInput) error {
		return applyNamed(m, uint32(r.SwIfIndex), r.Name, policing{model.PoliceInput, r.Apply})
	}),
	set[policer.PolicerOutputReply](func(m *model.Model, r *policer.PolicerOutput) error {
		return applyNamed(m, uint32(r.SwIfIndex), r.Name, policing{model.PoliceOutput, r.Apply})
	}),
	set[policer.PolicerInputV2Reply](func(m *model.Model, r *policer.PolicerInputV2) error {
		return m.Policers.Apply(uint32(r.SwIfIndex), r.PolicerIndex, model.PoliceInput, r.Apply)
	}),
	set[policer.PolicerOutputV2Reply](func(m *model.Model, r *policer.PolicerOutputV2) error {
		return m.Policers.Apply(uint32(r.SwIfIndex), r.PolicerIndex, model.PoliceOutput, r.Apply)
	}),
	dump(func(m *model.Model, r *policer.PolicerDump) ([]model.Policer, error) {
		if !r.MatchNameValid {
			return m.Policers.List(model.NoIndex), nil
		}
		index, err := m.Policers.Named(r.MatchName)
		if err != nil {
			return nil, err
		}
		return m.Policers.List(index), nil
	}, func(_ *policer.PolicerDump, p model.Policer) policer.PolicerDetails { return policerDetails(p) }),
	dump(func(m *model.Model, r *policer.PolicerDumpV2) ([]model.Policer, error) {
		return m.Policers.List(r.PolicerIndex), nil
	},
		func(_ *policer.PolicerDumpV2, p model.Policer) policer.PolicerDetails { return policerDetails(p) }),
	call(func(m *model.Model, r *feature.FeatureIsEnabled) (*feature.FeatureIsEnabledReply, error) {
		direction, known := policedArcs[arc{r.ArcName, r.FeatureName}]
		if !known {
			return nil, model.Unimplemented
		}
		is, err := m.Policers.IsPoliced(uint32(r.SwIfIndex), direction)
		return &feature.FeatureIsEnabledReply{IsEnabled: is}, err
	}),
}

// arc is a feature arc of VPP with a feature.
type arc struct{ name, feature string }

// policedArcs are the arcs that policer_input and policer_output of VPP 25.10 use.
var policedArcs = map[arc]model.Policing{
	{"device-input", "policer-input"}: model.PoliceInput,
	{"ip4-output", "policer-output"}:  model.PoliceOutput,
	{"ip6-output", "policer-output"}:  model.PoliceOutput,
}

// policing is the application of a policer to an interface, or its removal.
type policing struct {
	direction model.Policing
	apply     bool
}

// applyNamed applies the policer of a name. As in VPP the interface is checked first.
func applyNamed(m *model.Model, on uint32, name string, p policing) error {
	index, err := m.Policers.Named(name)
	if err != nil {
		if _, missing := m.Policers.IsPoliced(on, p.direction); missing != nil {
			return missing
		}
		return err
	}
	return m.Policers.Apply(on, index, p.direction, p.apply)
}

func policerOfRequest(r *policer.PolicerAddDel) model.Policer {
	return policerOf(r.Name, policer_types.PolicerConfig{
		Cir: r.Cir, Eir: r.Eir, Cb: r.Cb, Eb: r.Eb, RateType: r.RateType, RoundType: r.RoundType, Type: r.Type,
		ColorAware: r.ColorAware, ConformAction: r.ConformAction, ExceedAction: r.ExceedAction,
		ViolateAction: r.ViolateAction,
	})
}

func policerOf(name string, c policer_types.PolicerConfig) model.Policer {
	return model.Policer{
		Name: name, Rate: c.Cir, ExcessRate: c.Eir, Burst: c.Cb, Excess: c.Eb,
		Conform: fromAction(c.ConformAction), Exceed: fromAction(c.ExceedAction), Violate: fromAction(c.ViolateAction),
		RateType: uint8(c.RateType), RoundType: uint8(c.RoundType), Type: uint8(c.Type), ColorAware: c.ColorAware,
	}
}

// policerDetails has no fields of VPP's own arithmetic, such as tokens per period.
func policerDetails(p model.Policer) policer.PolicerDetails {
	return policer.PolicerDetails{
		Name: p.Name, Cir: p.Rate, Eir: p.ExcessRate, Cb: p.Burst, Eb: p.Excess,
		RateType:      policer_types.Sse2QosRateType(p.RateType),
		RoundType:     policer_types.Sse2QosRoundType(p.RoundType),
		Type:          policer_types.Sse2QosPolicerType(p.Type),
		ConformAction: toAction(p.Conform), ExceedAction: toAction(p.Exceed), ViolateAction: toAction(p.Violate),
		SingleRate: true, ColorAware: p.ColorAware,
	}
}

func fromAction(a policer_types.Sse2QosAction) model.PolicerAction {
	return model.PolicerAction{Type: uint8(a.Type), DSCP: a.Dscp}
}

func toAction(a model.PolicerAction) policer_types.Sse2QosAction {
	return policer_types.Sse2QosAction{Type: policer_types.Sse2QosActionType(a.Type), Dscp: a.DSCP}
}
