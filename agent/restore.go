package agent

import (
	"fmt"
	"log/slog"
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

// storage is the state file, which outlives a restart of the agent, with the functions that read it.
type storage struct {
	config  *config.Config
	file    *statefile.File
	monitor *statefile.Monitor
	cluster *membership
	log     *slog.Logger
}

// stored is the content of the state file that the agent's packages restore.
type stored struct {
	network      ipnet.Saved
	devices      []devicemanager.Saved
	suspicions   []recovery.Suspicion
	chains       []chain.Result
	events       []eventloop.Record
	transactions []*kvscheduler.Record
}

// restore restores all packages from the state file. After a reboot the sandboxes are gone with their attachments and
// leases; devices stay.
func (a *Agent) restore() error {
	if err := a.storage.forgetLastBoot(); err != nil {
		return err
	}
	from, err := a.storage.load()
	if err != nil {
		return err
	}
	attachments := from.network.Attachments
	a.backend.scheduler.Restore(from.transactions)
	if a.devices.manager != nil { // first, because networks need secrets
		a.devices.manager.Restore(from.devices, attachments)
		if err := a.devices.manager.Rebuild(); err != nil {
			return err
		}
	}
	a.network.Restore(from.network)
	a.cluster.paths.Restore(a.network.Mesh.PathMTU())
	a.pods.Restore(attachments)
	a.quarantine.Restore(from.suspicions, attachments)
	a.observers.chains.Restore(from.chains, attachments)
	a.network.Pods.SetWithheld(a.quarantine.Keys())
	a.loop.Restore(from.events)
	a.log.Info("state restored", "attachments", len(attachments), "leases", len(from.network.Leases),
		"devices", len(from.devices), "networks", len(from.network.Networks), "records", len(from.events))
	return nil
}

// load reads the state file.
func (s *storage) load() (from stored, err error) {
	if from.network, err = s.savedOfCluster(); err != nil {
		return from, err
	}
	if err = s.loadNetwork(&from.network, s.log); err != nil {
		return from, err
	}
	if err = s.loadRules(&from.network); err != nil {
		return from, err
	}
	if from.devices, err = statefile.Load[devicemanager.Saved](s.file, statefile.BucketDevices, s.log); err != nil {
		return from, err
	}
	from.suspicions, err = statefile.Load[recovery.Suspicion](s.file, statefile.BucketQuarantine, s.log)
	if err != nil {
		return from, err
	}
	if from.chains, err = statefile.Load[chain.Result](s.file, statefile.BucketChains, s.log); err != nil {
		return from, err
	}
	if from.events, err = statefile.Load[eventloop.Record](s.file, eventloop.RecordsBucket, s.log); err != nil {
		return from, err
	}
	from.transactions, err = statefile.Load[*kvscheduler.Record](s.file, statefile.BucketTransactions, s.log)
	return from, err
}

// loadNetwork loads the attachments of pods, their addresses and the networks.
func (s *storage) loadNetwork(saved *ipnet.Saved, log *slog.Logger) (err error) {
	saved.Attachments, err = statefile.Load[*pod.Attachment](s.file, statefile.BucketAttachments, log)
	if err != nil {
		return err
	}
	if saved.Leases, err = statefile.Load[ipam.Lease](s.file, statefile.BucketLeases, log); err != nil {
		return err
	}
	saved.Networks, err = statefile.Load[networks.SavedNetwork](s.file, statefile.BucketNetworks, log)
	return err
}

// loadRules loads the rules of pods by policies, which hold until the policies are known.
func (s *storage) loadRules(saved *ipnet.Saved) (err error) {
	if !s.config.Kubernetes.EnforcePolicies {
		return nil
	}
	if saved.Rules, err = statefile.Load[attach.SavedRules](s.file, statefile.BucketRules, s.log); err != nil {
		return err
	}
	saved.Lists, err = statefile.Load[attach.SavedList](s.file, statefile.BucketLists, s.log)
	return err
}

// savedOfCluster restores the records of other nodes and of this node's pools, blocks and external interfaces, if there
// is a cluster.
func (s *storage) savedOfCluster() (saved ipnet.Saved, err error) {
	if s.cluster.member == nil {
		return saved, nil
	}
	if saved.Nodes, err = statefile.Load[mesh.SavedNode](s.file, statefile.BucketNodes, s.log); err != nil {
		return saved, err
	}
	if saved.Blocks, err = statefile.Load[networks.SavedBlock](s.file, statefile.BucketBlocks, s.log); err != nil {
		return saved, err
	}
	if saved.Externals, err = statefile.Load[pod.External](s.file, statefile.BucketExternals, s.log); err != nil {
		return saved, err
	}
	if s.config.Kubernetes.Addresses != config.OfPools {
		saved.Blocks = slices.DeleteFunc(saved.Blocks, func(b networks.SavedBlock) bool {
			return b.Block.Network == ""
		})
	}
	pools, err := statefile.Load[networks.SavedPools](s.file, statefile.BucketPools, s.log)
	switch {
	case err != nil || len(pools) == 0:
	case s.config.Kubernetes.Addresses == config.OfPools:
		saved.Pools = &pools[0]
	case s.config.HasRanges():
		saved.Pools = cluster.WithRanges(*s.config, s.cluster.member.Ranges, pools[0])
	}
	return saved, err
}

// saved returns ipnet's part of the state file.
func (s *storage) saved() (ipnet.Saved, error) {
	saved, err := s.savedOfCluster()
	if err != nil {
		return saved, err
	}
	err = s.loadNetwork(&saved, slog.New(slog.DiscardHandler))
	return saved, err
}

func (s *storage) forgetLastBoot() error {
	boot, err := statefile.ReadBootID(s.config.BootID)
	if err != nil {
		return err
	}
	before, err := s.file.SwapBootID(boot)
	if err != nil {
		return fmt.Errorf("store boot id: %w", err)
	}
	if before == "" || before == boot {
		return nil
	}
	s.log.Info("node was rebooted, deleting attachments and leases", "boot", boot)
	return s.file.Clear(statefile.BucketAttachments, statefile.BucketLeases, statefile.BucketApplied,
		statefile.BucketQuarantine, statefile.BucketChains,
		statefile.BucketRules, statefile.BucketLists)
}
