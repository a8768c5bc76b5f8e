package devicemanager

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/pod"
)

// Devices are the devices of this node. The device plugin has the first ones, claims get the last ones. So the two
// never choose the same device, although neither knows the choice of the other.
type Devices struct {
	Count     int  // 1 to 1024; default 100
	Claimable int  // number of devices for claims, 0 to Count
	NUMANode  *int // of all devices; nil: none, they are as near to each processor
}

// pluginCount is the number of devices of the device plugin.
func (d Devices) pluginCount() int { return d.Count - d.Claimable }

// claimable returns the ids of the devices that claims get.
func (d Devices) claimable() (ids []string) {
	for n := d.pluginCount(); n < d.Count; n++ {
		ids = append(ids, deviceID(n))
	}
	return ids
}

// ofPlugin returns the requested devices sorted and without duplicates. It rejects devices that the device plugin does
// not have.
func (d Devices) ofPlugin(devices []string) ([]string, error) {
	for _, device := range devices {
		if n, ok := deviceNumber(device); !ok || n >= d.pluginCount() {
			return nil, fmt.Errorf("kubelet asks for device %q: %s has %s to %s", device, pod.Resource, deviceID(0),
				deviceID(d.pluginCount()-1))
		}
	}
	devices = slices.Clone(devices)
	slices.Sort(devices)
	return slices.Compact(devices), nil
}

// checkClaimable rejects a device that claims do not get.
func (d Devices) checkClaimable(device string) error {
	if n, ok := deviceNumber(device); !ok || n >= d.Count || n < d.pluginCount() {
		return fmt.Errorf("claims get %s of this node", strings.Join(ends(d.claimable()), " to "))
	}
	return nil
}

// ends returns the first and the last element.
func ends(ids []string) []string {
	if len(ids) == 0 {
		return []string{"none"}
	}
	return slices.Compact([]string{ids[0], ids[len(ids)-1]})
}

// without returns the devices that are not among taken; nil if all are.
func without(devices, taken []string) (left []string) {
	for _, d := range devices {
		if !slices.Contains(taken, d) {
			left = append(left, d)
		}
	}
	return left
}

// byNumber compares devices.
func byNumber(a, b string) int {
	x, _ := deviceNumber(a)
	y, _ := deviceNumber(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}

const devicePrefix = "memif-"

// deviceID returns the id of device n, counted from 0.
func deviceID(n int) string { return devicePrefix + strconv.Itoa(n) }

// deviceNumber is the inverse of deviceID.
func deviceNumber(id string) (int, bool) {
	digits, ok := strings.CutPrefix(id, devicePrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && deviceID(n) == id
}
