package controller

import (
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Range of the VNIs that the controller assigns, above those that users choose.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// vnis holds the UID of the network of each VNI.
type vnis map[int32]string

// assignVNIs assigns an unused VNI to each network without one, the oldest network first. It returns the new assignments, without deleted
// networks. The networks must have been read after given, the previous assignments, which stay.
func assignVNIs(given vnis, networks []*v1.CustomNetwork) vnis {
	known, taken := make(map[string]int32), make(map[int32]bool)
	for vni, uid := range given {
		known[uid], taken[vni] = vni, true
	}
	for _, n := range networks {
		taken[n.Status.VNI] = true
		if n.Spec.VNI != nil {
			taken[*n.Spec.VNI] = true
		}
	}
	now, next := make(vnis), int32(firstVNI)
	for _, n := range v1.ByAge(slices.Clone(networks)) {
		uid := string(n.UID)
		switch {
		case known[uid] != 0:
			now[known[uid]] = uid
			continue
		case n.Spec.VNI != nil:
			continue
		case n.Status.VNI != 0 && now[n.Status.VNI] == "" && given[n.Status.VNI] == "":
			now[n.Status.VNI] = uid // its record is lost
			continue
		}
		for taken[next] && next < lastVNI {
			next++
		}
		if !taken[next] { // else there are sixteen million networks
			now[next], taken[next] = uid, true
		}
	}
	return now
}
