package agent

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet"
)

// uninstalled is a file beside the socket that says that this agent will not be started again: weft-agent uninstall
// leaves it there.
const uninstalled = "uninstalled"

// leave takes from the node what would outlive agent and dataplane, once Weft is uninstalled and wires no pod any more.
// Before, it stays: connections go on while the agent is replaced.
func (a *Agent) leave() error {
	if _, err := os.Lstat(filepath.Join(filepath.Dir(a.config.Socket), uninstalled)); err != nil || len(a.pods.Attachments()) > 0 {
		return nil //nolint:nilerr // without the file there is nothing to do
	}
	a.log.Info("uninstalled: the tables of nftables and links of VLANs are removed, an uplink of the dataplane is given back to the kernel")
	var err error
	if a.card != nil {
		if err = a.card.giveBack(); err == nil {
			err = a.card.forget(a.config.StateDir)
		}
	}
	return errors.Join(err, linux.RemoveMasquerade(), linux.RemoveTunnelNAT(), linux.RemoveVLANs(ipnet.ExternalAlias))
}
