package agent

import (
	"fmt"
	"slices"

	"github.com/weftnet/weft/agent/chain"
	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
)

// restore restores all packages from the state file. After a reboot the sandboxes are gone with their attachments and
// leases; devices stay.
func (a *Agent) restore() error {
	if err := a.forgetLastBoot(); err != nil {
		return err
	}
	attachments, err := statefile.Load[*pod.Attachment](a.state, statefile.BucketAttachments, a.log)
	if err != nil {
		return err
	}
	leases, err := statefile.Load[ipam.Lease](a.state, statefile.BucketLeases, a.log)
	if err != nil {
		return err
	}
	devices, err := statefile.Load[devicemanager.Saved](a.state, statefile.BucketDevices, a.log)
	if err != nil {
		return err
	}
	networks, err := statefile.Load[networks.SavedNetwork](a.state, statefile.BucketNetworks, a.log)
	if err != nil {
		return err
	}
	suspicions, err := statefile.Load[recovery.Suspicion](a.state, statefile.BucketQuarantine, a.log)
	if err != nil {
		return err
	}
	chains, err := statefile.Load[chain.Result](a.state, statefile.BucketChains, a.log)
	if err != nil {
		return err
	}
	records, err := statefile.Load[eventloop.Record](a.state, eventloop.RecordsBucket, a.log)
	if err != nil {
		return err
	}
	log, err := statefile.Load[*kvscheduler.Record](a.state, statefile.BucketTransactions, a.log)
	if err != nil {
		return err
	}
	a.scheduler.Restore(log)
	if a.devices != nil { // first, because networks need secrets
		a.devices.Restore(devices, attachments)
		if err := a.devices.Rebuild(); err != nil {
			return err
		}
	}
	saved, err := a.savedOfCluster()
	if err != nil {
		return err
	}
	saved.Attachments = attachments
	saved.Leases = leases
	saved.Networks = networks
	if err := a.loadRules(&saved); err != nil {
		return err
	}
	a.network.Restore(saved)
	a.paths.Restore(a.network.Mesh.PathMTU())
	a.pods.Restore(attachments)
	a.quarantine.Restore(suspicions, attachments)
	a.chains.Restore(chains, attachments)
	a.network.Pods.SetWithheld(a.quarantine.Keys())
	a.loop.Restore(records)
	a.log.Info("state restored", "attachments", len(attachments), "leases", len(leases), "devices", len(devices),
		"networks", len(networks), "records", len(records))
	return nil
}

// loadRules loads the rules of pods by policies, which hold until the policies are known.
func (a *Agent) loadRules(saved *ipnet.Saved) (err error) {
	if !a.config.Kubernetes.EnforcePolicies {
		return nil
	}
	if saved.Rules, err = statefile.Load[attach.SavedRules](a.state, statefile.BucketRules, a.log); err != nil {
		return err
	}
	saved.Lists, err = statefile.Load[attach.SavedList](a.state, statefile.BucketLists, a.log)
	return err
}

// savedOfCluster restores the records of other nodes and of this node's pools, blocks and external interfaces, if there
// is a cluster.
func (a *Agent) savedOfCluster() (saved ipnet.Saved, err error) {
	if a.member == nil {
		return saved, nil
	}
	if saved.Nodes, err = statefile.Load[mesh.SavedNode](a.state, statefile.BucketNodes, a.log); err != nil {
		return saved, err
	}
	if saved.Blocks, err = statefile.Load[networks.SavedBlock](a.state, statefile.BucketBlocks, a.log); err != nil {
		return saved, err
	}
	if saved.Externals, err = statefile.Load[pod.External](a.state, statefile.BucketExternals, a.log); err != nil {
		return saved, err
	}
	if a.config.Kubernetes.Addresses != config.OfPools {
		saved.Blocks = slices.DeleteFunc(saved.Blocks, func(b networks.SavedBlock) bool {
			return b.Block.Network == ""
		})
	}
	pools, err := statefile.Load[networks.SavedPools](a.state, statefile.BucketPools, a.log)
	switch {
	case err != nil || len(pools) == 0:
	case a.config.Kubernetes.Addresses == config.OfPools:
		saved.Pools = &pools[0]
	case a.config.HasRanges():
		saved.Pools = cluster.WithRanges(a.config, a.member.Ranges, pools[0])
	}
	return saved, err
}

func (a *Agent) forgetLastBoot() error {
	boot, err := statefile.ReadBootID(a.config.BootID)
	if err != nil {
		return err
	}
	before, err := a.state.SwapBootID(boot)
	if err != nil {
		return fmt.Errorf("store boot id: %w", err)
	}
	if before == "" || before == boot {
		return nil
	}
	a.log.Info("node was rebooted, deleting attachments and leases", "boot", boot)
	return a.state.Clear(statefile.BucketAttachments, statefile.BucketLeases, statefile.BucketApplied,
		statefile.BucketQuarantine, statefile.BucketChains,
		statefile.BucketRules, statefile.BucketLists)
}
