package vpp

import (
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"

	"github.com/weftnet/weft/wire"
)

func policerOn(iface string, d wire.PolicerDirection, rate, burst uint32) object {
	return object{wire.PolicerKey(iface, d), wire.Policer{Interface: iface, Direction: d, Rate: rate, Burst: burst}}
}

// marking is an object that also marks packets.
func marking(o object, dscp uint8) object {
	v := o.value.(wire.Policer)
	v.DSCP = &dscp
	return object{o.key, v}
}

func TestPolicersAreMadeReadBackChangedAndRemoved(t *testing.T) {
	for name, trial := range map[string]trial{
		"from the pod": {
			backendOf(policerDescriptor), policerOn("a", wire.PoliceInput, 1000, 1500),
			policerOn("a", wire.PoliceInput, 100_000, 125_000),
		},
		"to the pod": {
			backendOf(policerDescriptor), policerOn("a", wire.PoliceOutput, 1, 1),
			policerOn("a", wire.PoliceOutput, 1<<32-1, 1<<32-1),
		},
		"with a DSCP": {
			backendOf(policerDescriptor), marking(policerOn("a", wire.PoliceInput, 1000, 1500), 46),
			marking(policerOn("a", wire.PoliceInput, 1000, 1500), 0),
		},
		"with a DSCP that goes": {
			backendOf(policerDescriptor), marking(policerOn("a", wire.PoliceInput, 1000, 1500), 46),
			policerOn("a", wire.PoliceInput, 1000, 1500),
		},
	} {
		t.Run(name, func(t *testing.T) {
			newLab(t).try([]object{loopback("a", wire.Interface{}), loopback("b", wire.Interface{})}, trial)
		})
	}
}

// policers are the names of all policers.
func (l *lab) policers() string {
	l.Helper()
	r := askAll(&policer.PolicerDump{}, &policer.PolicerDetails{})
	if err := l.client.exchangeAll(l.Context(), []*request{r}); err != nil {
		l.Fatal(err)
	}
	var names []string
	for _, d := range listOf[*policer.PolicerDetails](r) {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

// add adds a policer without the scheduler.
func (l *lab) add(name string) {
	l.Helper()
	l.send(&policer.PolicerAddDel{
		IsAdd: true, Name: name, Cir: 1, Cb: 1,
		ConformAction: policer_types.Sse2QosAction{Type: policer_types.SSE2_QOS_ACTION_API_TRANSMIT},
	}, &policer.PolicerAddDelReply{})
}

func TestOrphanedPolicersAreRemovedAndForeignOnesKept(t *testing.T) {
	l := newLab(t)
	l.mustCommit(loopback("a", wire.Interface{}), policerOn("a", wire.PoliceInput, 1000, 1500))
	l.add("theirs")
	l.add("weft/theirs")
	l.add("weft/gone/output") // of an interface that is gone
	l.add("weft/a/output")    // never applied
	l.resync()
	l.quiet()
	if got, want := l.policers(), "weft/a/input theirs weft/theirs"; got != want {
		t.Errorf("policers %q, want %q", got, want)
	}
}

func TestPolicerThatIsNotAppliedIsRepaired(t *testing.T) {
	for _, d := range []wire.PolicerDirection{wire.PoliceInput, wire.PoliceOutput} {
		l := newLab(t)
		l.mustCommit(loopback("a", wire.Interface{}), policerOn("a", d, 1000, 1500))
		_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "a"))
		remove := applyPolicer(wire.PolicerName("a", d), meta.(Index), false)
		if err := l.client.exchangeAll(l.Context(), []*request{remove}); err != nil {
			t.Fatal(err)
		}
		if got := len(l.differences()); got != 1 {
			t.Errorf("%s: %d differences are seen, want 1", d, got)
		}
		l.resync()
		l.quiet()
		asks := policers{l.client}.asksForPolicer(meta.(Index), d)
		if err := l.client.exchangeAll(t.Context(), asks); err != nil || len(l.differences()) > 0 {
			t.Errorf("%s: not repaired: %v", d, err)
		}
	}
}

func TestPolicerThatVPPCannotEnforceIsRefused(t *testing.T) {
	bridged := wire.Policer{Direction: wire.PoliceOutput, Bridged: true}
	dscp := uint8(46)
	for _, c := range []struct {
		version string
		value   wire.Policer
		refused bool
	}{
		{"vpe 25.10-release", bridged, true},
		{"vpe 26.02-release", bridged, true},
		{"vpe 26.06-release", bridged, false},
		{"weft-vswitch 1.0", bridged, false},
		{"vpe 25.10-release", wire.Policer{Direction: wire.PoliceInput, Bridged: true}, false},
		{"vpe 25.10-release", wire.Policer{Direction: wire.PoliceOutput}, false},
		{"vpe 26.06-release", wire.Policer{DSCP: &dscp, Bare: true}, true},
		{"weft-vswitch 1.0", wire.Policer{DSCP: &dscp, Bare: true}, false},
		{"vpe 26.06-release", wire.Policer{Bare: true}, false},
		{"vpe 26.06-release", wire.Policer{Direction: wire.PoliceInput, Bare: true}, false},
		{"vpe 26.02-release", wire.Policer{Direction: wire.PoliceInput, Bare: true}, true},
		{"vpe 25.10-release", wire.Policer{Direction: wire.PoliceInput, Bare: true}, true},
		{"vpe 25.10-release", wire.Policer{Direction: wire.PoliceOutput, Bare: true}, false},
		{"weft-vswitch 1.0", wire.Policer{Direction: wire.PoliceInput, Bare: true}, false},
		{"vpe 25.10-release", wire.Policer{Direction: wire.PoliceInput, Bridged: true, Trunk: true}, false},
		{"vpe 26.06-release", wire.Policer{Direction: wire.PoliceInput, Bridged: true, Trunk: true}, true},
		{"vpe 25.10-release", wire.Policer{DSCP: &dscp, Bridged: true, Trunk: true}, true},
		{"weft-vswitch 1.0", wire.Policer{Direction: wire.PoliceOutput, Bridged: true, Trunk: true}, false},
	} {
		b := policers{&Client{connection: connection{version: c.version}}}
		if err := b.refusal(c.value); (err != nil) != c.refused {
			t.Errorf("%s, %+v: %v", c.version, c.value, err)
		}
		if !c.refused {
			continue
		}
		batch := []policerItem{{Name: "weft-a", Want: c.value}}
		if b.Create(t.Context(), batch); batch[0].Err == nil {
			t.Errorf("%s, %+v: the object is made without its limit", c.version, c.value)
		}
	}
}

func TestInvalidPolicersAreRefused(t *testing.T) {
	valid := wire.Policer{Interface: "a", Direction: wire.PoliceInput, Rate: 1, Burst: 1}
	if err := validatePolicer("a/input", valid); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*wire.Policer){
		"no direction":      func(v *wire.Policer) { v.Direction = "" },
		"another name":      func(v *wire.Policer) { v.Direction = wire.PoliceOutput },
		"no rate":           func(v *wire.Policer) { v.Rate = 0 },
		"no burst":          func(v *wire.Policer) { v.Burst = 0 },
		"a DSCP of 7 bits":  func(v *wire.Policer) { v.DSCP = new(uint8(64)) },
		"another interface": func(v *wire.Policer) { v.Interface = "b" },
	} {
		v := valid
		change(&v)
		if validatePolicer("a/input", v) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// VPP does not check whether a policer is in use when it deletes it.
func TestPolicerIsRemovedFromItsInterfaceFirst(t *testing.T) {
	var sent []string
	for _, r := range removePolicer("a/output", 7) {
		sent = append(sent, r.msg.GetMessageName())
	}
	want := strings.Repeat("policer_output ", 3) + "policer_add_del" // applied, then ended twice
	if got := strings.Join(sent, " "); got != want {
		t.Errorf("sent %s", got)
	}
	if n := len(removePolicer("a/output", noIndex)); n != 1 {
		t.Errorf("%d messages without an interface", n)
	}
}

// VPP writes behind the list of policers when it ends the policing of an interface that never had a policer.
func TestAPolicerIsAppliedBeforeItIsRemoved(t *testing.T) {
	for _, d := range []wire.PolicerDirection{wire.PoliceInput, wire.PoliceOutput} {
		for why, requests := range map[string][]*request{
			"removal": removePolicer(wire.PolicerName("a", d), 7),
			"ending":  unapplyPolicer(wire.PolicerName("a", d), 7),
		} {
			applied := false
			for _, r := range requests {
				switch m := r.msg.(type) {
				case *policer.PolicerInput:
					applied = applied || m.Apply
				case *policer.PolicerOutput:
					applied = applied || m.Apply
				}
				if !applied {
					t.Errorf("%s, %s: %+v before the policer is applied", why, d, r.msg)
				}
			}
		}
	}
}

// An interface that leaves its bridge domain loses the policer in VPP 26.06.
func TestAPolicerFollowsTheMembershipOfABridgeDomain(t *testing.T) {
	l := newLab(t)
	limit := policerOn("a", wire.PoliceInput, 1000, 1500)
	v := limit.value.(wire.Policer)
	v.Bridged = true
	limit.value = v
	blue := bridge("blue", learning(5))
	red := bridge("red", learning(6))
	l.mustCommit(blue, red, loopback("a", wire.Interface{}), inBridge("blue", "a"), limit)
	moved := inBridge("red", "a")
	l.mustCommit(moved)
	l.quiet()
	l.alwaysBefore(0, moved.key, limit.key)
}
