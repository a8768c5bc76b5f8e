package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// Range of the VNIs that the controller assigns, above those that users choose.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// vnis holds the UID of the network of each VNI.
type vnis map[int32]string

// assignVNIs assigns an unused VNI to each network without one, the oldest network first, and keeps previous
// assignments. It returns the assignments without deleted networks. The networks must have been read after previous.
func assignVNIs(previous vnis, networks []*v1.CustomNetwork) vnis {
	known := make(map[string]int32)
	taken := make(map[int32]bool)
	for vni, uid := range previous {
		known[uid] = vni
		taken[vni] = true
	}
	for _, n := range networks {
		taken[n.Status.VNI] = true
		if n.Spec.VNI != nil {
			taken[*n.Spec.VNI] = true
		}
	}
	now := make(vnis)
	next := int32(firstVNI)
	for _, n := range v1.ByAge(slices.Clone(networks)) {
		uid := string(n.UID)
		switch {
		case known[uid] != 0:
			now[known[uid]] = uid
			continue
		case n.Spec.VNI != nil:
			continue
		case n.Status.VNI != 0 && now[n.Status.VNI] == "" && previous[n.Status.VNI] == "":
			now[n.Status.VNI] = uid // the ledger was lost
			continue
		}
		for taken[next] && next < lastVNI {
			next++
		}
		if !taken[next] { // else all VNIs are assigned
			now[next] = uid
			taken[next] = true
		}
	}
	return now
}

// ledgerName is the ConfigMap of the VNIs: its keys are VNIs, its values the networks' UIDs.
const ledgerName = "weft-vnis"

// ledger assigns the VNIs of networks.
type ledger struct {
	client    *client.Client
	namespace string
	log       *slog.Logger
}

// assignMissing assigns VNIs: first in the ledger, whose resource version admits only one of several writers, then
// in the networks' status. The next reconciliation retries what fails.
func (l *ledger) assignMissing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*client.RequestTimeout)
	defer cancel()
	object, previous, err := l.read(ctx)
	if err != nil {
		return err
	}
	// This list is read after the ledger, and not from a watch, which may be older than another writer's assignment: a
	// network that is missing here is deleted.
	list, err := l.client.Networks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list CustomNetworks: %w", err)
	}
	networks := pointers(list.Items)
	now := assignVNIs(previous, networks)
	if !maps.Equal(now, previous) {
		if err := l.write(ctx, object, now); err != nil {
			return err
		}
	}
	has := make(map[string]int32, len(now))
	for vni, uid := range now {
		has[uid] = vni
	}
	var errs []error
	for _, n := range networks {
		errs = append(errs, l.writeVNI(ctx, n, has[string(n.UID)]))
	}
	return errors.Join(errs...)
}

func (l *ledger) writeVNI(ctx context.Context, n *v1.CustomNetwork, vni int32) error {
	if n.Spec.VNI != nil || vni == 0 || n.Status.VNI == vni {
		return nil
	}
	n.Status.VNI = vni
	if _, err := l.client.Networks().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("assign VNI %d to network %s: %w", vni, n.Name, err)
	}
	l.log.Info("VNI assigned", "network", n.Name, "vni", vni)
	return nil
}

// read returns the ledger's object, nil if it does not exist, and its content.
func (l *ledger) read(ctx context.Context) (*corev1.ConfigMap, vnis, error) {
	object, err := l.client.ConfigMaps(l.namespace).Get(ctx, ledgerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, vnis{}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read ConfigMap %s: %w", ledgerName, err)
	}
	previous := make(vnis, len(object.Data))
	for key, uid := range object.Data {
		vni, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("ConfigMap %s: key %q is not a VNI: remove it", ledgerName, key)
		}
		previous[int32(vni)] = uid
	}
	return object, previous, nil
}

// write replaces the content of the ledger if its version has not changed.
func (l *ledger) write(ctx context.Context, object *corev1.ConfigMap, now vnis) error {
	store := l.client.ConfigMaps(l.namespace)
	isNew := object == nil
	if isNew {
		object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledgerName}}
	}
	object.Data = make(map[string]string, len(now))
	for vni, uid := range now {
		object.Data[strconv.Itoa(int(vni))] = uid
	}
	var err error
	if isNew {
		_, err = store.Create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = store.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ledgerName, err)
	}
	return nil
}
