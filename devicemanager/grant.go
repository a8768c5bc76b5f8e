package devicemanager

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Devices returns the allocations of the pod's containers, in kubelet's order of containers. A sandbox that is not a
// Kubernetes pod has none. Errors name the pod and have a CNI code. Devices recreates a lost directory, because the ADD
// relies on it.
func (m *Manager) Devices(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	if id.IsZero() {
		return nil, nil
	}
	found, err := m.devicesOf(ctx, id)
	if err != nil {
		return nil, pod.Errorf(pod.CodeTryAgain, "pod %s: ask kubelet at %s for its devices: %s: is kubelet running?",
			id, m.config.PodResources, status.Convert(err).Message())
	}
	var grants []pod.Grant
	for _, c := range found {
		holders := m.holders(c.devices)
		if len(holders) == 0 {
			return nil, pod.Errorf(pod.CodeDeviceMissing,
				"pod %s: container %s has device %s, but this node lost its allocation: delete the pod and create it again",
				id, c.container, strings.Join(c.devices, ", "))
		}
		if err := m.ensure(ctx, holders); err != nil {
			return nil, pod.Errorf(pod.CodeIO, "pod %s: container %s: %w", id, c.container, err)
		}
		for _, a := range holders {
			grants = append(grants, pod.Grant{Container: c.container, GID: pod.UnknownGroup, Allocation: a.clone()})
		}
	}
	return grants, nil
}

// Grant is the ADD handler that runs after the pod got its memifs. It lets the pod's processes, and no others, use the
// directories of their allocations.
func (m *Manager) Grant(_ context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
	if ev.Repeated || ev.Attachment == nil {
		return nil
	}
	owners := make(map[string]*pod.Memif) // by allocation
	for _, in := range ev.Attachment.Interfaces {
		if in.Memif == nil {
			continue
		}
		if owner := owners[in.Memif.Allocation]; owner != nil {
			if owner.UID != in.Memif.UID || owner.GID != in.Memif.GID || owner.Container != in.Memif.Container {
				return pod.Errorf(pod.CodeInvalidAnnotation,
					"%s: %s: memifs of container %s share one directory: give them the same uid and gid, those of interface %s differ",
					ev, pod.AnnotationOptions, owner.Container, in.Name)
			}
			continue
		}
		owners[in.Memif.Allocation] = in.Memif
		if err := m.grantOne(ev, in.Memif, txn); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) grantOne(ev *pod.AddPod, to *pod.Memif, txn *eventloop.Txn) error {
	had := m.find(to.Allocation)
	if had == nil {
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: container %s: allocation %s was released meanwhile: delete the pod and create it again", ev, to.Container, to.Allocation)
	}
	_, used := m.user(had.ID)
	handedOn := had.Claim != nil && !used && had.Claim.IsFor(ev.ID) // a claim outlives its pods
	if isOtherPod(had.Pod, ev.ID) && !handedOn || had.Granted && had.Container != to.Container {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: container %s: allocation %s belongs to container %s of pod %s",
			ev, to.Container, had.ID, had.Container, had.Pod)
	}
	a := *had
	a.Pod, a.Container, a.UID, a.GID, a.Granted = ev.ID, to.Container, to.UID, to.GID, true
	a.Attachment, a.Netns = ev.Key, ev.Netns
	if !a.direct && hasDirect(ev.Attachment, a.ID) {
		a.direct = true
		for _, device := range a.Devices {
			txn.Delete(wire.FileKey(m.config.deviceInfoPath(device)))
		}
	}
	m.put(a.ID, &a, txn)
	m.use(a.ID, ev.Key, ev.ID)
	txn.OnRollback(func() error { m.leave(a.ID, ev.Key); return nil })
	if err := m.putValues(&a, txn); err != nil {
		return err
	}
	txn.Save(bucket, a.ID, a.saved())
	return nil
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
func (m *Manager) Leave(_ context.Context, ev *pod.DeletePod, txn *eventloop.Txn) error {
	for id, was := range m.usedBy(ev.Key) {
		m.leave(id, ev.Key)
		txn.OnRollback(func() error { m.use(id, ev.Key, was); return nil })
	}
	txn.OnCommit(m.wakeCollector)
	return nil
}

func (m *Manager) use(id string, key pod.Key, by pod.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users[id] == nil {
		m.users[id] = make(map[pod.Key]pod.ID)
	}
	m.users[id][key] = by
}

func (m *Manager) leave(id string, key pod.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.users[id], key)
	if len(m.users[id]) == 0 {
		delete(m.users, id)
	}
}

// user returns a pod with an attachment that uses the allocation.
func (m *Manager) user(id string) (by pod.ID, used bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, by := range m.users[id] {
		return by, true
	}
	return pod.ID{}, false
}

// usedBy returns the allocations that an attachment uses, each with the attachment's pod.
func (m *Manager) usedBy(key pod.Key) map[string]pod.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := make(map[string]pod.ID)
	for id, users := range m.users {
		if by, ok := users[key]; ok {
			used[id] = by
		}
	}
	return used
}
