package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftnet/weft/test/node"
)

// bridgeConflist asks the bridge plugin for what weft-cni gives: one address of each family and default routes.
const bridgeConflist = `{
  "cniVersion": "1.0.0", "name": "bridge",
  "plugins": [{
    "type": "bridge", "bridge": "bench0", "isGateway": true,
    "ipam": {
      "type": "host-local", "dataDir": %q,
      "ranges": [[{"subnet": "10.2.0.0/16"}], [{"subnet": "fd00:10:2::/64"}]],
      "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    }
  }]
}`

// bridgeRuntime executes the plugins in dir and keeps their state below state.
func bridgeRuntime(dir, state string) (*node.Runtime, error) {
	conflist := fmt.Sprintf(bridgeConflist, filepath.Join(state, "host-local"))
	return node.NewRuntime([]byte(conflist), []string{dir}, filepath.Join(state, "bridge-cache"), os.Stderr)
}
