package controller

import (
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Identifiers of VXLAN that are given to networks which ask for none: above those that people like to choose.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// VNIs is who has which identifier of VXLAN, by the UID of the network.
type vnis map[int32]string

// assignVNIs gives each network that has none yet, and asks for none, an identifier that no network has or asks for; the
// oldest network chooses first. Given is who has which so far; what is returned is who has which from now on, without
// networks that are no more. Networks must have been read after given. An identifier that a network has stays its own.
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
			now[n.Status.VNI] = uid // it was given, and the record of it is lost
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
