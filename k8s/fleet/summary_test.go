package fleet_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/fleet"
)

func (l lab) lease(holder string, renewed *time.Time) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "weft-system", Name: "weft-controller"}}
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(15))
	lease.Spec.HolderIdentity = ptr.To(holder)
	if renewed != nil {
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(*renewed))
	}
	l.Put("leases.coordination.k8s.io", lease)
}

func TestControllerLeadsUntilALongSilence(t *testing.T) {
	l := newLab(t)
	check := func(now time.Time, want string, running bool) {
		t.Helper()
		if s := l.Summary(t.Context(), now); s.Controller != want || s.ControllerRunning != running {
			t.Errorf("controller %q, running %v, want %q", s.Controller, s.ControllerRunning, want)
		}
	}
	check(created, "none has run: namespace weft-system has no lease weft-controller", false)
	l.lease("", &created)
	check(created, "none leads", false)
	l.lease("c-1", nil)
	check(created, "none leads", false)
	l.lease("c-1", &created)
	check(created.Add(-time.Hour), "c-1 leads", true) // the clock of this machine is late
	check(created.Add(time.Minute), "c-1 leads", true)
	check(created.Add(61*time.Second), "c-1 renewed its lease last 1m1s ago", false)
}

func TestObjectsThatAreNotReadyAreProblems(t *testing.T) {
	l := newLab(t)
	network := func(name string, generation int64, conditions ...metav1.Condition) {
		n := &v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
		n.Status.Conditions = conditions
		l.Put("customnetworks.contivpp.io", n)
	}
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}
	network("valid", 2, ready)
	network("changed", 3, ready)
	network("new", 1)
	network("invalid", 2, metav1.Condition{
		Type:               v1.ConditionReady,
		Status:             metav1.ConditionFalse,
		Reason:             "Overlap",
		Message:            "10.0.0.0/8",
		ObservedGeneration: 2,
	})
	for _, disabled := range []bool{true, false} {
		p := &v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: map[bool]string{true: "off", false: "on"}[disabled]}}
		p.Spec.Disabled = disabled
		l.Put("ippools.contivpp.io", p)
	}
	s := l.Summary(t.Context(), created)
	want := []fleet.Bad{
		{Kind: "network", Name: "changed", Reason: "the controller has not seen its last change yet"},
		{Kind: "network", Name: "invalid", Reason: "Overlap: 10.0.0.0/8"},
		{Kind: "network", Name: "new", Reason: "no status: does the controller run?"},
		{Kind: "pool", Name: "on", Reason: "no status: does the controller run?"},
	}
	if s.Networks != 4 || s.Pools != 2 || s.Unreadable != "" || !reflect.DeepEqual(s.Problems, want) {
		t.Errorf("%d networks, %d pools, unreadable %q, problems\n%+v\nwant\n%+v", s.Networks, s.Pools, s.Unreadable,
			s.Problems, want)
	}
}

func TestUnreadablePartsAreNamed(t *testing.T) {
	l := newLab(t)
	l.Fail(func(*http.Request) int { return http.StatusForbidden })
	s := l.Summary(t.Context(), created)
	for _, part := range []string{"customnetworks.contivpp.io", "; ", "ippools.contivpp.io"} {
		if !strings.Contains(s.Unreadable, part) {
			t.Errorf("unreadable %q lacks %q", s.Unreadable, part)
		}
	}
	if !strings.HasPrefix(s.Controller, "unknown: ") || s.ControllerRunning {
		t.Errorf("controller %q", s.Controller)
	}
}
