package devicemanager

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weftnet/weft/pod"
)

const devicePrefix = "memif-"

// deviceID is kubelet's name for the device of that number, from 0.
func deviceID(n int) string { return devicePrefix + strconv.Itoa(n) }

// deviceNumber reads a device's name.
func deviceNumber(id string) (int, bool) {
	digits, ok := strings.CutPrefix(id, devicePrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && deviceID(n) == id
}

// The files of an allocation.

func secretPath(directory string) string { return directory + "/secret" }
func recordPath(directory string) string { return directory + ".json" }

// deviceInfoPath is where the device information specification, 1.1.0 section 4.1, looks for a device's file.
func (c Config) deviceInfoPath(device string) string {
	name := strings.ReplaceAll(pod.Resource, "/", "-") + "-" + device + "-device.json"
	return filepath.Join(c.DeviceInfoDir, name)
}
