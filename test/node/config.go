package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// agentConfig is the agent's configuration; the places are filled in. YAML takes JSON's strings.
const agentConfig = `socket: %q
stateDir: %q
dataplane:
  type: embedded
  socket: %q
  program: %q
  log: %q
pools:
  - {name: pods4, prefix: 10.1.0.0/24}
  - {name: pods6, prefix: "fd00:10:1::/64"}
coolDown: %s
mtu: 1500
hostLink: %s
log: {level: info, format: text}
healthFile: %q
verify: %t
`

func (n *Node) writeConfig(o Options) error {
	text := fmt.Sprintf(agentConfig, n.Socket(), n.State(), n.DataplaneSocket(), n.Program("weft-vswitch"), n.DataplaneLog(),
		o.CoolDown, HostLink, filepath.Join(n.run(), "healthy"), o.Verify)
	if err := os.WriteFile(n.Config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the agent's configuration: %w", err)
	}
	return nil
}

// Conflist is the CNI configuration for weft-cni on this node.
func (n *Node) Conflist() ([]byte, error) {
	return json.Marshal(map[string]any{
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"0.4.0", "1.0.0", "1.1.0"},
		"name":        "weft",
		"plugins": []any{map[string]any{
			"type":         "weft-cni",
			"socket":       n.Socket(),
			"deleteQueue":  filepath.Join(n.State(), "delete-queue"),
			"logFile":      "",
			"capabilities": map[string]bool{"ips": true, "mac": true, "io.kubernetes.cri.pod-annotations": true},
		}},
	})
}
