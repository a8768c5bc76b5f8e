package devicemanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// admissionTime bounds the time between the Allocate requests of one pod: kubelet sends them one after the other.
const admissionTime = 10 * time.Second

// handlers change allocations in the transactions of the event loop.
type handlers struct {
	devices   Devices
	table     *table
	users     *users
	factory   *factory
	layout    *layout
	collector *collector
}

// Allocate handles kubelet's Allocate for one container. Kubelet does not name the container.
func (h *handlers) Allocate(_ context.Context, ev *pod.AllocateDevice, txn *eventloop.Txn) error {
	devices, err := h.devices.ofPlugin(ev.Devices)
	if err != nil {
		return err
	}
	if err := h.refuseClaimed(devices); err != nil {
		return err
	}
	id, err := h.factory.newID()
	if err != nil {
		return fmt.Errorf("id of the allocation: %w", err)
	}
	a, err := h.factory.newAllocation(id, devices)
	if err != nil {
		return err
	}
	if err := h.takeDevices(a, txn); err != nil {
		return err
	}
	if err := h.store(a, txn); err != nil {
		return err
	}
	given := a.clone()
	ev.Allocation = &given
	return nil
}

// refuseClaimed rejects devices that a claim has. Kubelet may ask for them after devices.memif.claims of the
// configuration has changed.
func (h *handlers) refuseClaimed(devices []string) error {
	for _, a := range h.table.holders(devices) {
		if a.Claim != nil {
			return fmt.Errorf("device %s is still claim %s's: delete the claim's pod", strings.Join(a.Devices, ", "),
				a.Claim)
		}
	}
	return nil
}

// takeDevices removes the devices of the new allocation from their previous allocations. Kubelet gives a device to
// another container after its pod has ended; the collector releases the previous allocation later.
func (h *handlers) takeDevices(to *allocation, txn *eventloop.Txn) error {
	for _, had := range h.table.holders(to.Devices) {
		left := *had
		left.Devices = without(had.Devices, to.Devices)
		if !had.Granted && to.Created.Sub(had.Created) < admissionTime {
			left.successor = to.ID
		}
		if err := h.store(&left, txn); err != nil {
			return err
		}
	}
	return nil
}

// Grant is the ADD handler that runs after the pod got its memifs. It lets the pod's processes, and no others, use the
// directories of their allocations.
func (h *handlers) Grant(_ context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
	if ev.Repeated || ev.Attachment == nil {
		return nil
	}
	return h.grant(&ev.Request, ev.Attachment, txn)
}

// grant opens the directories of the memifs that an attachment has. They may be open already.
func (h *handlers) grant(request *pod.Request, to *pod.Attachment, txn *eventloop.Txn) error {
	owners := make(map[string]*pod.Memif) // by allocation
	for _, in := range to.Interfaces {
		if in.Memif == nil {
			continue
		}
		if owner := owners[in.Memif.Allocation]; owner != nil {
			if owner.UID != in.Memif.UID || owner.GID != in.Memif.GID || owner.Container != in.Memif.Container {
				return pod.Errorf(pod.CodeInvalidAnnotation,
					"%s: %s: memifs of container %s share one directory: give them the same uid and gid, those of interface %s differ",
					request, pod.AnnotationOptions, owner.Container, in.Name)
			}
			continue
		}
		owners[in.Memif.Allocation] = in.Memif
		if err := h.grantOne(request, to, in.Memif, txn); err != nil {
			return err
		}
	}
	return nil
}

// grantOne opens the directory of one memif of an attachment.
func (h *handlers) grantOne(request *pod.Request, of *pod.Attachment, to *pod.Memif, txn *eventloop.Txn) error {
	had := h.table.find(to.Allocation)
	if had == nil {
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: container %s: allocation %s was released meanwhile: delete the pod and create it again", request,
			to.Container, to.Allocation)
	}
	_, used := h.users.user(had.ID)
	handedOn := had.Claim != nil && !used && had.Claim.IsFor(request.ID) // a claim outlives its pods
	if isOtherPod(had.Pod, request.ID) && !handedOn || had.Granted && had.Container != to.Container {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: container %s: allocation %s belongs to container %s of pod %s",
			request, to.Container, had.ID, had.Container, had.Pod)
	}
	a := *had
	a.Pod = request.ID
	a.Container = to.Container
	a.UID = to.UID
	a.GID = to.GID
	a.Granted = true
	a.Attachment = request.Key
	a.Netns = request.Netns
	if !a.direct && hasDirect(of, a.ID) {
		a.direct = true
		for _, device := range a.Devices {
			txn.Delete(wire.FileKey(h.layout.deviceInfoPath(device)))
		}
	}
	if _, uses := h.users.usedBy(request.Key)[a.ID]; !uses {
		h.users.use(a.ID, request.Key, request.ID)
		txn.OnRollback(func() error { h.users.leave(a.ID, request.Key); return nil })
	}
	return h.store(&a, txn)
}

// Change is the handler of a change of a pod's interfaces: it opens the directories of its new memifs. The allocations
// of removed ones stay the pod's, which may request a memif again: kubelet allocates once in a pod's life.
func (h *handlers) Change(_ context.Context, ev *pod.ChangePod, txn *eventloop.Txn) error {
	if ev.Attachment == nil {
		return nil
	}
	return h.grant(&ev.Request, ev.Attachment, txn)
}

// hasDirect reports whether an attachment has a memif of the allocation on a direct network.
func hasDirect(a *pod.Attachment, allocation string) bool {
	return slices.ContainsFunc(a.Interfaces, func(i pod.Interface) bool {
		return i.Memif != nil && i.Memif.Allocation == allocation && i.Memif.IsDirect()
	})
}

// isOtherPod reports whether b is certainly not the pod a.
func isOtherPod(a, b pod.ID) bool {
	if a.IsZero() {
		return false
	}
	return a.Namespace != b.Namespace || a.Name != b.Name || a.UID != b.UID && a.UID != "" && b.UID != ""
}

// Leave is the DEL handler. The allocation stays, because kubelet allocates once in a pod's life, but the attachment no
// longer protects it from the collector.
func (h *handlers) Leave(_ context.Context, ev *pod.DeletePod, txn *eventloop.Txn) error {
	for id, was := range h.users.usedBy(ev.Key) {
		h.users.leave(id, ev.Key)
		txn.OnRollback(func() error { h.users.use(id, ev.Key, was); return nil })
	}
	txn.OnCommit(h.collector.wakeUp)
	return nil
}

// store puts an allocation into the table, puts its files and saves it.
func (h *handlers) store(a *allocation, txn *eventloop.Txn) error {
	h.table.put(a.ID, a, txn)
	if err := h.layout.put(a, txn); err != nil {
		return err
	}
	txn.Save(bucket, a.ID, a.saved())
	return nil
}

// Release deletes an allocation and its files.
func (h *handlers) Release(_ context.Context, ev *pod.ReleaseDevice, txn *eventloop.Txn) error {
	a := h.table.find(ev.Allocation)
	if a == nil {
		return nil
	}
	return h.drop(a, txn)
}

// drop deletes an allocation and its files. It fails while an attachment uses the allocation.
func (h *handlers) drop(a *allocation, txn *eventloop.Txn) error {
	if user, used := h.users.user(a.ID); used {
		return fmt.Errorf("an attachment of pod %s still uses it", user)
	}
	files, err := h.layout.files(a)
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(files) {
		txn.Delete(wire.FileKey(f.path))
	}
	txn.Save(bucket, a.ID, nil)
	h.table.put(a.ID, nil, txn)
	return nil
}

// PrepareClaim handles the preparation of a claim: it makes an allocation for each of its devices, or no allocation.
// Unchanged allocations of an earlier preparation stay.
func (h *handlers) PrepareClaim(_ context.Context, ev *pod.PrepareClaim, txn *eventloop.Txn) error {
	for _, old := range h.table.ofClaim(ev.Claim.UID) {
		if slices.ContainsFunc(ev.Devices, old.serves) {
			continue
		}
		if err := h.drop(old, txn); err != nil {
			return fmt.Errorf("the claim was prepared with other devices or parameters: %w", err)
		}
	}
	for _, d := range ev.Devices {
		a, err := h.prepareDevice(d, txn)
		if err != nil {
			return fmt.Errorf("device %s of claim %s: %w", d.Device, ev.Claim, err)
		}
		ev.Allocations = append(ev.Allocations, a.clone())
	}
	return nil
}

// prepareDevice returns the allocation of a claim's device, and makes it if necessary.
func (h *handlers) prepareDevice(d pod.ClaimedDevice, txn *eventloop.Txn) (*allocation, error) {
	if err := h.devices.checkClaimable(d.Device); err != nil {
		return nil, err
	}
	if _, err := d.Parameters.Request(); err != nil {
		return nil, err
	}
	var a *allocation
	for _, holder := range h.table.holders([]string{d.Device}) {
		if !holder.serves(d) {
			return nil, fmt.Errorf("it is still %s; try again when it is released", holder.holds())
		}
		own := *holder
		a = &own
	}
	if a == nil {
		id, err := h.factory.newID()
		if err != nil {
			return nil, fmt.Errorf("id of the allocation: %w", err)
		}
		if a, err = h.factory.newAllocation(id, []string{d.Device}); err != nil {
			return nil, err
		}
	}
	a.Claim = &d
	if err := a.validateRecord(); err != nil {
		return nil, err
	}
	return a, h.store(a, txn)
}

// ReleaseClaim deletes the allocations of a claim with their files.
func (h *handlers) ReleaseClaim(_ context.Context, ev *pod.ReleaseClaim, txn *eventloop.Txn) error {
	for _, a := range h.table.ofClaim(ev.Claim.UID) {
		if err := h.drop(a, txn); err != nil {
			return err
		}
	}
	return nil
}

// resync puts the files of all allocations and saves the allocations that differ from the state file.
func (h *handlers) resync(_ context.Context, txn *eventloop.Txn) error {
	all := h.table.inOrder()
	for _, a := range all {
		if err := h.layout.put(a, txn); err != nil {
			return err
		}
		if h.table.isUnsaved(a.ID) {
			txn.Save(bucket, a.ID, a.saved())
		}
	}
	txn.OnCommit(func() { h.table.markSaved(all) })
	return nil
}
