// Package multus_test gives claims and selections of Weft's pods to Multus' own code, thin and thick, which executes
// weft-cni. It is a module of its own, because Multus' packages need modules that Weft does not.
package multus_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/multus"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/server/api"

	"github.com/weftnet/weft/internal/netnstest"
)

// The test is also the plugins of Multus: a runtime executes links to it.
const (
	thinPlugin = "multus"
	shimPlugin = "multus-shim"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case thinPlugin:
		skel.PluginMainFuncs(thin(), version.All, "thin Multus")
		return
	case shimPlugin:
		skel.PluginMainFuncs(shim(), version.All, "the shim of thick Multus")
		return
	}
	netnstest.Enter()
	os.Exit(m.Run())
}

// thin has the functions of the program multus.
func thin() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add: func(args *skel.CmdArgs) error {
			result, err := multus.CmdAdd(args, nil, nil)
			if err != nil {
				return err
			}
			return result.Print()
		},
		Del:    func(args *skel.CmdArgs) error { return multus.CmdDel(args, nil, nil) },
		Check:  func(args *skel.CmdArgs) error { return multus.CmdCheck(args, nil, nil) },
		Status: func(args *skel.CmdArgs) error { return multus.CmdStatus(args, nil, nil) },
	}
}

// shim has the functions of the program multus-shim.
func shim() skel.CNIFuncs {
	return skel.CNIFuncs{Add: api.CmdAdd, Del: api.CmdDel, Check: api.CmdCheck, Status: api.CmdStatus}
}
