// Command weft-cni is the CNI plugin that a container runtime starts for each sandbox; by the name weft-ipam, other
// plugins do.
package main

import (
	"os"

	"github.com/weftnet/weft/cni"
	"github.com/weftnet/weft/internal/version"
)

func main() {
	os.Exit(cni.Main(version.String(), os.Args))
}
