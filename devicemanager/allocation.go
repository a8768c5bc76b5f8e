package devicemanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/weftnet/weft/pod"
)

// allocation is a set of devices that kubelet requested for one container, or one device of a claim, with its
// directory, socket and secret.
//
//	           AllocateDevice                 AddPod
//	not there ----------------> allocated -------------> granted to a container (again for each sandbox of its pod)
//	    ^                           |                        |
//	    +------ ReleaseDevice ------+------------------------+
//	       kubelet no longer lists its devices, and no attachment uses it
//
// An allocation loses a device when kubelet gives that device to another container. An allocation of a claim has the
// same states between PrepareClaim and ReleaseClaim, and never loses its device.
type allocation struct {
	pod.Allocation

	// successor is the id of the allocation that took over the devices during the admission of the same pod: kubelet
	// reuses the devices of an init container. The mount of the init container must exist as long as the pod does.
	successor string

	// direct means that a memif of the container is on a direct network: its socket is another one than the
	// dataplane's.
	direct bool
}

// clone returns a deep copy of the public part.
func (a *allocation) clone() pod.Allocation {
	c := a.Allocation
	c.Devices = slices.Clone(c.Devices)
	return c
}

// validate rejects an allocation that Allocate cannot have made. Its names become file names, so each one is checked.
func (a *allocation) validate() error {
	switch {
	case !isRandomText(a.ID, idLength):
		return errors.New("its id is invalid")
	case !isRandomText(string(a.Secret), secretLength):
		return errors.New("its secret is invalid")
	case !filepath.IsAbs(a.Directory) || filepath.Clean(a.Directory) != a.Directory ||
		filepath.Base(a.Directory) != a.ID:
		return fmt.Errorf("its directory %q is invalid", a.Directory)
	case a.UID < 0 || a.UID >= math.MaxUint32 || a.GID < pod.UnknownGroup || a.GID >= math.MaxUint32:
		return fmt.Errorf("user %d or group %d is invalid", a.UID, a.GID)
	}
	for _, device := range a.Devices {
		if n, ok := deviceNumber(device); !ok || n >= MostDevices {
			return fmt.Errorf("device %q is invalid", device)
		}
	}
	return a.validateClaim()
}

// validateRecord rejects a claim with an owner record that Rebuild would not read.
func (a *allocation) validateRecord() error {
	record, err := json.Marshal(recordOf(a))
	if err == nil && len(record) > maxClaimRecord {
		err = fmt.Errorf(
			"its owner record, with %d pods, has %d bytes, at most %d are possible: reserve the claim for fewer pods",
			len(a.Claim.Pods), len(record), maxClaimRecord)
	}
	return err
}

// serves reports whether an allocation belongs to a claim's device, with the same interface. The pods of the claim may
// differ.
func (a *allocation) serves(d pod.ClaimedDevice) bool {
	if a.Claim == nil || a.Claim.ClaimID != d.ClaimID || a.Claim.Device != d.Device || a.Claim.Request != d.Request {
		return false
	}
	was, wrong := json.Marshal(a.Claim.Parameters)
	is, wrongToo := json.Marshal(d.Parameters)
	return wrong == nil && wrongToo == nil && string(was) == string(is)
}

// holds names the owner of the allocation's devices.
func (a *allocation) holds() string {
	switch {
	case a.Claim != nil:
		return "claim " + a.Claim.String() + "'s (" + a.Claim.UID + ")"
	case a.Pod.IsZero():
		return "a container's, by the device plugin"
	default:
		return "pod " + a.Pod.String() + "'s, by the device plugin"
	}
}

// validateClaim rejects an allocation of a claim that PrepareClaim cannot have made.
func (a *allocation) validateClaim() error {
	if a.Claim == nil {
		return nil
	}
	if _, err := a.Claim.Parameters.Request(); err != nil {
		return fmt.Errorf("parameters of its claim: %w", err)
	}
	if a.Claim.UID == "" || len(a.Devices) > 1 || len(a.Devices) == 1 && a.Devices[0] != a.Claim.Device {
		return errors.New("its claim is invalid")
	}
	return nil
}
