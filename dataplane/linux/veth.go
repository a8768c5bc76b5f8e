package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type vethItem = kvscheduler.Item[wire.Veth, Place]

// veths are pairs of links with one end in a pod, or in the node's own namespace, and one where the dataplane is. The host's
// end identifies a pair of ours: it outlives the path of the pod's namespace.
type veths struct {
	name  func(host, alias string) (object, ifName string, ok bool) // nil: no veth is found by its alias
	later *Later
}

func vethDescriptor(o Options) kvscheduler.Descriptor[wire.Veth, Place] {
	return kvscheduler.Descriptor[wire.Veth, Place]{
		Name: wire.KindVeth, Lane: Lane,
		Equal:    equalVeths,
		Validate: validateVeth,
		Deps: func(_ string, v wire.Veth) []kvscheduler.Dep {
			if v.Namespace == "" {
				return nil
			}
			return []kvscheduler.Dep{{
				Label: "network namespace", On: kvscheduler.Ref{Kind: wire.KindNamespace, Name: v.Namespace},
			}}
		},
		Recreate: func(have, want wire.Veth) bool {
			return have.Namespace != want.Namespace || have.Name != want.Name || have.HostName != want.HostName ||
				have.RxQueues != want.RxQueues || have.TxQueues != want.TxQueues
		},
		After:   []string{wire.KindNamespace},
		Backend: veths{name: o.VethName, later: o.Later},
	}
}

func validateVeth(_ string, v wire.Veth) error {
	switch {
	case v.Namespace == "" && v.Name == v.HostName:
		return fmt.Errorf("both ends are named %s and are in the node's namespace", v.Name)
	case v.Alias == "" || len(v.Alias) > maxAlias:
		return fmt.Errorf("alias: it has 1 to %d bytes", maxAlias)
	case v.MTU != 0 && (v.MTU < 68 || v.MTU > 65535):
		return fmt.Errorf("MTU %d is not within 68 and 65535", v.MTU)
	case min(v.RxQueues, v.TxQueues) < 0 || max(v.RxQueues, v.TxQueues) > wire.MaxQueues:
		return fmt.Errorf("%d and %d queues are not within 0, which is the kernel's, and %d", v.RxQueues, v.TxQueues, wire.MaxQueues)
	}
	for _, mac := range []wire.MAC{v.MAC, v.HostMAC} {
		if !mac.IsZero() && !mac.IsUnicast() {
			return fmt.Errorf("MAC %s is not that of one interface", mac)
		}
	}
	return errors.Join(validateLink(v.Name), validateLink(v.HostName))
}

// equalVeths leaves to the kernel what want does not say.
func equalVeths(want, have wire.Veth) bool {
	if want.MAC.IsZero() {
		want.MAC = have.MAC
	}
	if want.HostMAC.IsZero() {
		want.HostMAC = have.HostMAC
	}
	if want.MTU == 0 {
		want.MTU = have.MTU
	}
	return want == have
}

// Create makes the pairs, or finishes those that are there. One that cannot be finished is removed again.
func (b veths) Create(ctx context.Context, batch []vethItem) {
	b.each(ctx, batch, func(home *handle, it *vethItem) error {
		it.NewMeta = Place{}
		for _, dep := range it.Handles {
			it.NewMeta, _ = dep.(Place)
		}
		return pair{it.Want, b.later.of(it.Name)}.realise(home, it.Have.Alias, it.NewMeta)
	})
}

// Update changes what differs on both ends.
func (b veths) Update(ctx context.Context, batch []vethItem) { b.Create(ctx, batch) }

// Delete removes the host's ends, and with them the pods', wherever these are by now.
func (b veths) Delete(ctx context.Context, batch []vethItem) {
	err := visit("", Place{}, func(home *handle) error {
		deleteVeths(ctx, home, batch)
		return nil
	})
	if err == nil {
		return
	}
	for i := range batch {
		batch[i].Err = refused(err)
	}
}

// deleteVeths deletes all pairs at once.
func deleteVeths(ctx context.Context, home *handle, batch []vethItem) {
	begun := make([]*deletion, len(batch))
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		l, err := home.link(it.Have.HostName)
		if err == nil && isOurVeth(l, it.Have, "") {
			begun[i] = beginDeletion(l)
		}
		it.Err = notDeleted(it, err)
	}
	for i, d := range begun {
		if d != nil {
			batch[i].Err = notDeleted(&batch[i], d.await(home))
		}
	}
}

func notDeleted(it *vethItem, err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	return fmt.Errorf("delete veth %s: %w", it.Have.HostName, err)
}

// each runs f for each item, with a netlink socket of the namespace of agent and dataplane.
func (veths) each(ctx context.Context, batch []vethItem, f func(home *handle, it *vethItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		var fault error
		err := visit("", Place{}, func(home *handle) error {
			fault = f(home, it)
			return nil
		})
		if it.Err = fault; err != nil {
			it.Err = refused(err)
		}
	}
}

// Dump looks for all known pairs, and for those that are a pod's by their alias: an agent that ended in the middle of an ADD has
// not recorded the pair that it made.
func (b veths) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Veth, Place], error] {
	var names []string
	for name := range view.All(wire.KindVeth) {
		names = append(names, name)
	}
	return func(yield func(kvscheduler.Actual[wire.Veth, Place], error) bool) {
		for a, err := range b.Read(ctx, view, names) {
			if !yield(a, err) || err != nil {
				return
			}
		}
		unrecorded, err := b.unrecorded(names)
		if err != nil {
			yield(kvscheduler.Actual[wire.Veth, Place]{}, err)
			return
		}
		for _, a := range unrecorded {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// unrecorded lists the pairs that are a pod's by their alias and that are none of the known ones, as far as the node's end tells.
func (b veths) unrecorded(known []string) (list []kvscheduler.Actual[wire.Veth, Place], err error) {
	if b.name == nil {
		return nil, nil
	}
	err = visit("", Place{}, func(home *handle) error {
		links, err := whole(home.LinkList)
		for _, l := range links {
			a := l.Attrs()
			object, ifName, isPods := b.name(a.Name, a.Alias)
			if isPods && isVeth(l) && !slices.Contains(known, object) {
				v := wire.Veth{Name: ifName, HostName: a.Name, HostMAC: macOf(l), MTU: a.MTU, Alias: a.Alias, Up: isUp(l)}
				list = append(list, kvscheduler.Actual[wire.Veth, Place]{Name: object, V: v})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for veths of pods: %w", err)
	}
	return list, nil
}

// Read looks for the named pairs.
func (b veths) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.Veth, Place], error] {
	return func(yield func(kvscheduler.Actual[wire.Veth, Place], error) bool) {
		for _, name := range names {
			a, ok, err := b.seek(view, name)
			if err == nil {
				err = ctx.Err()
			}
			if (ok || err != nil) && !yield(a, err) || err != nil {
				return
			}
		}
	}
}

// seek looks for a pair in all forms that it may have: as it was applied, and as it is desired.
func (b veths) seek(view kvscheduler.View, name string) (a kvscheduler.Actual[wire.Veth, Place], found bool, err error) {
	err = visit("", Place{}, func(home *handle) error {
		for _, v := range known[wire.Veth](view, wire.KindVeth, name) {
			l, err := home.link(v.HostName)
			if errors.Is(err, errNoLink) || err == nil && !isOurVeth(l, v, "") {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s/%s: %w", wire.KindVeth, name, err)
			}
			place, _ := placeOf(view, v.Namespace)
			v, err = pair{v, b.later.of(name)}.read(l, place)
			a, found = kvscheduler.Actual[wire.Veth, Place]{Name: name, V: v, Meta: place}, err == nil
			return err
		}
		return nil
	})
	return a, found, err
}

// isOurVeth tells whether a link is the host's end of v; was is the alias that we gave it before. One that died before
// it got its alias is known by its name and MAC.
func isOurVeth(l netlink.Link, v wire.Veth, was string) bool {
	a := l.Attrs()
	switch {
	case l.Type() != (&netlink.Veth{}).Type():
		return false
	case a.Alias == "":
		return v.Alias == "" || v.HostMAC.IsZero() || macOf(l) == v.HostMAC
	}
	return a.Alias == v.Alias || a.Alias == was
}
