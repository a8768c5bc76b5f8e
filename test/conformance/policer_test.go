package conformance

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"
)

// newPolicer is a policer as the agent adds it, with changes.
func newPolicer(name string, changes ...func(*policer.PolicerAddDel)) *policer.PolicerAddDel {
	m := &policer.PolicerAddDel{
		IsAdd: true, Name: name, Cir: 1000, Cb: 80_000,
		ConformAction: policer_types.Sse2QosAction{Type: policer_types.SSE2_QOS_ACTION_API_TRANSMIT},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func noPolicer(name string) *policer.PolicerAddDel { return &policer.PolicerAddDel{Name: name} }

// policed asks for the features of VPP 25.10: later releases have others.
func policed(i index) []api.Message {
	return []api.Message{
		&feature.FeatureIsEnabled{ArcName: "device-input", FeatureName: "policer-input", SwIfIndex: i},
		&feature.FeatureIsEnabled{ArcName: "ip4-output", FeatureName: "policer-output", SwIfIndex: i},
		&feature.FeatureIsEnabled{ArcName: "ip6-output", FeatureName: "policer-output", SwIfIndex: i},
	}
}

// policerCase is the case that sends all messages of policers.
const policerCase = "policer: policers are added, applied, dumped and removed"

// policerCases are the messages by which the agent limits rates.
var policerCases = []testCase{
	{name: policerCase, run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		list := &policer.PolicerDump{}
		named := &policer.PolicerDump{MatchNameValid: true, MatchName: "blue"}
		l.each(list, named, newPolicer("blue"), newPolicer("red", func(m *policer.PolicerAddDel) {
			m.Cir = ^uint32(0)
			m.Cb = 1<<32 - 1
			m.ConformAction.Type = policer_types.SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT
			m.ConformAction.Dscp = 46
		}), list, named, newPolicer("blue"))
		l.each(&policer.PolicerDumpV2{PolicerIndex: 1}, &policer.PolicerDumpV2{PolicerIndex: 2},
			&policer.PolicerDumpV2{PolicerIndex: anyID})
		// Before the first step the end of policing crashes VPP, and its answers to the questions are wrong: see
		// dataplane/vpp.
		l.each(&policer.PolicerInput{Name: "blue", SwIfIndex: a, Apply: true},
			&policer.PolicerOutput{Name: "red", SwIfIndex: a, Apply: true})
		l.each(&policer.PolicerInput{Name: "blue", SwIfIndex: a}, &policer.PolicerOutput{Name: "red", SwIfIndex: a})
		l.each(policed(a)...)
		l.each(&policer.PolicerInput{Name: "blue", SwIfIndex: a, Apply: true})
		l.each(policed(a)...)
		l.each(&policer.PolicerOutput{Name: "red", SwIfIndex: a, Apply: true})
		l.each(policed(a)...)
		l.each(&policer.PolicerInput{Name: "blue", SwIfIndex: a}, &policer.PolicerOutput{Name: "red", SwIfIndex: a})
		l.each(policed(a)...)
		l.each(&policer.PolicerInput{Name: "none", SwIfIndex: a, Apply: true},
			&policer.PolicerInput{Name: "blue", SwIfIndex: allInterfaces, Apply: true},
			&policer.PolicerOutput{Name: "none", SwIfIndex: allInterfaces, Apply: true},
			noPolicer("blue"), noPolicer("blue"), noPolicer("red"), list)
	}},
	{name: "policer: removed from an interface that never had one", kills: map[string]string{
		"25.10": "SIGSEGV in policer_input (policer.c): policer_index_by_sw_if_index is shorter than the index",
		"26.06": "SIGSEGV as in 25.10 (policer_op.c)",
	}, run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.each(newPolicer("blue"), &policer.PolicerInput{Name: "blue", SwIfIndex: a},
			&policer.PolicerOutput{Name: "blue", SwIfIndex: a})
	}},
	{name: "policer: applied twice", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.each(newPolicer("blue"), newPolicer("red"), &policer.PolicerOutput{Name: "blue", SwIfIndex: a, Apply: true},
			&policer.PolicerOutput{Name: "red", SwIfIndex: a, Apply: true})
		remove := &policer.PolicerOutput{Name: "red", SwIfIndex: a}
		for range 3 {
			l.each(remove)
			l.each(policed(a)[1])
		}
	}},
	{name: "policer: invalid policers", run: func(l *lab) {
		for _, change := range []func(*policer.PolicerAddDel){
			func(m *policer.PolicerAddDel) { m.Cir = 0 },
			func(m *policer.PolicerAddDel) { m.Cb = 0 },
			func(m *policer.PolicerAddDel) { m.Eir = 1 },
			func(m *policer.PolicerAddDel) { m.Eb = 1 },
		} {
			l.each(newPolicer("blue", change))
		}
		l.each(&policer.PolicerDump{})
	}},
}
