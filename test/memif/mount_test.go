package memif_test

import (
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
)

// By default the mount does not hide /run/vpp, where a VPP in the container has its own files. A program of Contiv-VPP
// may need that path.
func TestMountPathIsThatOfTheConfiguration(t *testing.T) {
	for path, option := range map[string]string{"/run/memif": "", "/run/vpp": "/run/vpp"} {
		t.Run(path, func(t *testing.T) {
			l := newLab(t, node.Options{MemifMount: option})
			p, containers := l.admit("a", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
			defer l.Forget(p)
			mounts := containers[0].Mounts
			socket := containers[0].Envs["MEMIF_SOCKET"]
			if len(mounts) != 1 || mounts[0].GetContainerPath() != path || socket != path+"/memif.sock" {
				t.Errorf("mounts %v, and the socket is %s", mounts, socket)
			}
		})
	}
}
