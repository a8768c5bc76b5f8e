package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/peer"
	"github.com/weftnet/weft/test/e2e/weft"
)

// cniVariable names the environment variable with the CNI of the run.
const cniVariable = "WEFT_E2E_CNI"

// cnis are the CNIs that the tests can run with; each run has one.
var cnis = map[string]cluster.CNI{"bridge": peer.Bridge{}, "weft": weft.Weft{}}

func chosenCNI() (cluster.CNI, error) {
	name := os.Getenv(cniVariable)
	if name == "" {
		name = "weft"
	}
	cni, ok := cnis[name]
	if !ok {
		return nil, fmt.Errorf("%s is %q, not one of %v", cniVariable, name, slices.Sorted(maps.Keys(cnis)))
	}
	return cni, nil
}
