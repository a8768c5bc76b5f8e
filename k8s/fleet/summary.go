package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// controllerName is the name of the controller's lease.
const controllerName = "weft-controller"

// Summary is the part of a cluster's state that no single node knows.
type Summary struct {
	Controller        string `json:"controller"`           // the replica that leads, or why none does
	ControllerRunning bool   `json:"controllerRunning"`    // whether one leads
	Networks          int    `json:"networks"`             // CustomNetworks
	Pools             int    `json:"pools"`                // IPPools
	Problems          []Bad  `json:"problems,omitempty"`   // networks and pools that are not ready
	Unreadable        string `json:"unreadable,omitempty"` // why networks or pools could not be read
}

// Bad is an object with a problem.
type Bad struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Summary reads the state of the controller, the networks and the pools. now is compared with the controller's lease.
func (f *Fleet) Summary(ctx context.Context, now time.Time) Summary {
	s := Summary{}
	s.Controller, s.ControllerRunning = f.controller(ctx, now)
	var unreadable []string
	if list, err := f.client.Networks().List(ctx, metav1.ListOptions{}); err != nil {
		unreadable = append(unreadable, f.client.ListError(ctx, "customnetworks."+v1.Group, err).Error())
	} else {
		s.Networks = len(list.Items)
		for i := range list.Items {
			n := &list.Items[i]
			s.note("network", n, n.Status.Conditions)
		}
	}
	if list, err := f.client.Pools().List(ctx, metav1.ListOptions{}); err != nil {
		unreadable = append(unreadable, f.client.ListError(ctx, "ippools."+v1.Group, err).Error())
	} else {
		s.Pools = len(list.Items)
		for i := range list.Items {
			p := &list.Items[i]
			if !p.Spec.Disabled {
				s.note("pool", p, p.Status.Conditions)
			}
		}
	}
	s.Unreadable = strings.Join(unreadable, "; ")
	slices.SortFunc(s.Problems, func(a, b Bad) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return s
}

// note adds an object that is not ready. An outdated or missing condition is a problem, too: the controller has not
// seen the object.
func (s *Summary) note(kind string, o metav1.Object, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1.ConditionReady)
	switch {
	case ready == nil:
		s.Problems = append(s.Problems, Bad{kind, o.GetName(), "no status: does the controller run?"})
	case ready.Status != metav1.ConditionTrue:
		s.Problems = append(s.Problems, Bad{kind, o.GetName(), ready.Reason + ": " + ready.Message})
	case ready.ObservedGeneration < o.GetGeneration():
		s.Problems = append(s.Problems, Bad{kind, o.GetName(), "the controller has not seen its last change yet"})
	}
}

// controller returns the replica of the controller that leads.
func (f *Fleet) controller(ctx context.Context, now time.Time) (text string, running bool) {
	lease, err := f.client.Leases(f.namespace).Get(ctx, controllerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("none has run: namespace %s has no lease %s", f.namespace, controllerName), false
	case err != nil:
		return "unknown: " + f.client.ListError(ctx, "leases", err).Error(), false
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" || lease.Spec.RenewTime == nil {
		return "none leads", false
	}
	// Clocks of machines differ, so only a long silence counts.
	silent := now.Sub(lease.Spec.RenewTime.Time)
	if limit := 4 * time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15)) * time.Second; silent > limit {
		return fmt.Sprintf("%s renewed its lease last %s ago", holder, silent.Round(time.Second)), false
	}
	return holder + " leads", true
}
