package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Claimable returns the ids of the devices that claims get: the last ones. Kubelet gets the others, so the two never choose the same
// device, although neither knows what the other has chosen.
func (m *Manager) Claimable() (ids []string) {
	for n := m.config.pluginCount(); n < m.config.Count; n++ {
		ids = append(ids, deviceID(n))
	}
	return ids
}

// Claim prepares the devices of a claim. A repeated call returns the same allocations, in the order of the devices.
func (m *Manager) Claim(ctx context.Context, claim pod.ClaimID, devices []pod.ClaimedDevice) ([]pod.Allocation, error) {
	if err := m.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.AllocateTimeout)
	defer cancel()
	ev := &pod.PrepareClaim{Claim: claim, Devices: devices}
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		return nil, err
	}
	m.config.Log.Info("claim prepared", "claim", claim.String(), "uid", claim.UID, "devices", len(devices), "took", rec.Took)
	return ev.Allocations, nil
}

// Unclaim releases the devices of a claim. It fails while an attachment uses one of them. An unknown claim is no error.
func (m *Manager) Unclaim(ctx context.Context, claim pod.ClaimID, reason string) error {
	if len(m.ofClaim(claim.UID)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.AllocateTimeout)
	defer cancel()
	if _, err := m.config.Loop.Do(ctx, &pod.ReleaseClaim{Claim: claim, Reason: reason}); err != nil {
		return err
	}
	m.config.Log.Info("claim released", "claim", claim.String(), "uid", claim.UID, "reason", reason)
	return nil
}

// Claims returns the prepared claims, oldest first.
func (m *Manager) Claims() (claims []pod.ClaimID) {
	for _, a := range m.inOrder() {
		if a.Claim != nil && !slices.Contains(claims, a.Claim.ClaimID) {
			claims = append(claims, a.Claim.ClaimID)
		}
	}
	return claims
}

// Claimed returns the allocations of the pod's claims, oldest first. Errors name the pod and have a CNI code. Claimed recreates a lost
// directory, because the ADD relies on it.
func (m *Manager) Claimed(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	var own []*allocation
	for _, a := range m.inOrder() {
		if a.Claim != nil && a.Claim.IsFor(id) {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	if err := m.ensure(ctx, own); err != nil {
		return nil, pod.Errorf(pod.CodeIO, "pod %s: %w", id, err)
	}
	var grants []pod.Grant
	for _, a := range own {
		grants = append(grants, pod.Grant{GID: pod.UnknownGroup, Allocation: a.clone()})
	}
	return grants, nil
}

// PrepareClaim handles the preparation of a claim: it makes an allocation for each of its devices, or for none. Allocations of an earlier
// preparation stay if nothing about them differs.
func (m *Manager) PrepareClaim(_ context.Context, ev *pod.PrepareClaim, txn *eventloop.Txn) error {
	for _, old := range m.ofClaim(ev.Claim.UID) {
		if slices.ContainsFunc(ev.Devices, old.serves) {
			continue
		}
		if err := m.drop(old, txn); err != nil {
			return fmt.Errorf("the claim was prepared with other devices or parameters: %w", err)
		}
	}
	for _, d := range ev.Devices {
		a, err := m.prepareDevice(d, txn)
		if err != nil {
			return fmt.Errorf("device %s of claim %s: %w", d.Device, ev.Claim, err)
		}
		ev.Allocations = append(ev.Allocations, a.clone())
	}
	return nil
}

// prepareDevice returns the allocation of a claim's device, and makes it if there is none.
func (m *Manager) prepareDevice(d pod.ClaimedDevice, txn *eventloop.Txn) (*allocation, error) {
	if n, ok := deviceNumber(d.Device); !ok || n >= m.config.Count || n < m.config.pluginCount() {
		return nil, fmt.Errorf("claims get %s of this node", strings.Join(ends(m.Claimable()), " to "))
	}
	if _, err := d.Parameters.Request(); err != nil {
		return nil, err
	}
	var a *allocation
	for _, holder := range m.holders([]string{d.Device}) {
		if !holder.serves(d) {
			return nil, fmt.Errorf("it is still %s; try again when it is released", holder.holds())
		}
		own := *holder
		a = &own
	}
	if a == nil {
		id, err := m.newID()
		if err != nil {
			return nil, fmt.Errorf("id of the allocation: %w", err)
		}
		if a, err = m.newAllocation(id, []string{d.Device}); err != nil {
			return nil, err
		}
	}
	a.Claim = &d
	if err := a.validateRecord(); err != nil {
		return nil, err
	}
	m.put(a.ID, a, txn)
	txn.Save(bucket, a.ID, a.saved())
	return a, m.putValues(a, txn)
}

// validateRecord rejects a claim with an owner record that Rebuild would not read.
func (a *allocation) validateRecord() error {
	record, err := json.Marshal(recordOf(a))
	if err == nil && len(record) > maxClaimRecord {
		err = fmt.Errorf("its owner record, with %d pods, has %d bytes, at most %d are possible: reserve the claim for fewer pods",
			len(a.Claim.Pods), len(record), maxClaimRecord)
	}
	return err
}

// ends returns the first and the last element.
func ends(ids []string) []string {
	if len(ids) == 0 {
		return []string{"none"}
	}
	return slices.Compact([]string{ids[0], ids[len(ids)-1]})
}

// serves reports whether an allocation is that of a claim's device, with the same interface. The pods of the claim may differ.
func (a *allocation) serves(d pod.ClaimedDevice) bool {
	if a.Claim == nil || a.Claim.ClaimID != d.ClaimID || a.Claim.Device != d.Device || a.Claim.Request != d.Request {
		return false
	}
	was, wrong := json.Marshal(a.Claim.Parameters)
	is, wrongToo := json.Marshal(d.Parameters)
	return wrong == nil && wrongToo == nil && string(was) == string(is)
}

// holds says what has the allocation's devices.
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

// ReleaseClaim deletes the allocations of a claim with their files.
func (m *Manager) ReleaseClaim(_ context.Context, ev *pod.ReleaseClaim, txn *eventloop.Txn) error {
	for _, a := range m.ofClaim(ev.Claim.UID) {
		if err := m.drop(a, txn); err != nil {
			return err
		}
	}
	return nil
}

// ofClaim returns the allocations of a claim.
func (m *Manager) ofClaim(uid string) (found []*allocation) {
	for _, a := range m.inOrder() {
		if a.Claim != nil && a.Claim.UID == uid {
			found = append(found, a)
		}
	}
	return found
}

// refuseClaimed rejects devices that a claim has. Kubelet may ask for them after devices.memif.claims of the configuration has changed.
func (m *Manager) refuseClaimed(devices []string) error {
	for _, a := range m.holders(devices) {
		if a.Claim != nil {
			return fmt.Errorf("device %s is still claim %s's: delete the claim's pod", strings.Join(a.Devices, ", "), a.Claim)
		}
	}
	return nil
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

// CDIKind is the kind of the devices in CDI files. The name of a device is the id of its allocation, which is never used again: runtimes
// cache the files by name.
const CDIKind = pod.Resource

// cdiVersion is the first version of CDI files with device names that begin with a digit.
const cdiVersion = "0.5.0"

// CDIDevice returns the name by which a runtime finds the mount and the environment of an allocation.
func CDIDevice(a *pod.Allocation) string { return CDIKind + "=" + a.ID }

// cdiPath is the path of an allocation's CDI file, with a name as the specification recommends for transient files.
func (c Config) cdiPath(a *allocation) string {
	return filepath.Join(c.CDIDir, strings.ReplaceAll(CDIKind, "/", "-")+"_"+a.ID+".json")
}

// cdiFile returns the CDI file of a claim's allocation: the mount of its directory, at a path that no other memif of the pod has, and the
// environment. It does not have the secret, which is in the directory.
func (c Config) cdiFile(a *allocation) (file, error) {
	name := a.Claim.Parameters.Interface
	target := c.ClaimPath + "/" + name
	options := []string{"bind", "nosuid", "nodev", "noexec"}
	if !c.Writable {
		options = append(options, "ro")
	}
	content, err := json.Marshal(specs.Spec{
		Version: cdiVersion, Kind: CDIKind,
		Devices: []specs.Device{{Name: a.ID, ContainerEdits: specs.ContainerEdits{
			Env:    []string{pod.SocketVariable(name) + "=" + target + "/memif.sock"},
			Mounts: []*specs.Mount{{HostPath: a.Directory, ContainerPath: target, Options: options}},
		}}},
	})
	if err != nil {
		return file{}, fmt.Errorf("CDI file of allocation %s: %w", a.ID, err)
	}
	return file{c.cdiPath(a), wire.File{Type: wire.RegularFile, Mode: 0o600, Content: string(content)}}, nil
}
