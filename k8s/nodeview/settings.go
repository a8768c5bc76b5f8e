package nodeview

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/informer"
)

// settings are the WeftConfig.
type settings struct {
	watched *informer.Informer[*v1.WeftConfig]
}

func (s *settings) addTo(v *View) {
	v.Switches.Marks = blocks.DefaultMarks()
	v.Switches.PodInterfaces = true
	v.Switches.InterfaceChanges = true
	config, exists := s.watched.One(v1.WeftConfigName)
	if !exists {
		return
	}
	spec := config.Spec
	if spec.Paused {
		v.Paused = cmp.Or(spec.PausedReason, "the cluster is paused")
	}
	v.Switches.Borrowing = spec.Addresses.Borrowing
	v.Switches.PodInterfaces = ptr.Deref(spec.PodInterfaces, true)
	v.Switches.InterfaceChanges = ptr.Deref(spec.InterfaceChanges, true)
	marks := v.Switches.Marks
	addresses := spec.Addresses
	marks.Low = int(ptr.Deref(addresses.LowWater, int32(marks.Low)))
	marks.High = max(marks.Low, int(ptr.Deref(addresses.HighWater, int32(marks.High)))) // if only one of them is set
	marks.MaxBlocks = int(ptr.Deref(addresses.MaxBlocks, int32(marks.MaxBlocks)))
	if w := addresses.WarmBlocks; w != nil && addresses.LowWater == nil {
		marks.WarmBlocks = int(*w)
	}
	if d := addresses.ReleaseAfter; d != nil {
		marks.Grace = d.Duration
	}
	if err := marks.Validate(); err != nil {
		v.Faults = append(v.Faults, Fault{"WeftConfig", config.Name, err.Error()})
		return
	}
	v.Switches.Marks = marks
}

// outside refuses a pool that is not within the clusterCIDRs, or only reports it, as the WeftConfig demands.
func (s *settings) outside(v *View, p PoolView) error {
	config, exists := s.watched.One(v1.WeftConfigName)
	if !exists {
		return nil
	}
	spec := config.Spec.Addresses
	applies := false
	for _, text := range spec.ClusterCIDRs {
		r := text.Prefix()
		if r.Bits() <= p.Prefix.Bits() && r.Contains(p.Prefix.Addr()) {
			return nil
		}
		applies = applies || r.IsValid() && r.Addr().Is4() == p.Prefix.Addr().Is4()
	}
	if !applies {
		return nil
	}
	err := fmt.Errorf("%s is not within the cluster's ranges %v", p.Prefix, spec.ClusterCIDRs)
	if spec.OutsideClusterCIDRs == v1.OutsideRefuse {
		return err
	}
	v.Faults = append(v.Faults, Fault{"IPPool", p.Name, err.Error() + "; it is used all the same"})
	return nil
}
