package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// uplinks is the backend of network cards that the dataplane owns.
type uplinks struct{}

type uplinkItem = kvscheduler.Item[wire.Uplink, struct{}]

// uplinkDescriptor: everything by which the dataplane serves the card stands before the kernel gives it up, and goes after the
// kernel has it back. A dataplane that refuses a part of it, or that was restarted and has none of it yet, leaves the card with
// the kernel.
func uplinkDescriptor() kvscheduler.Descriptor[wire.Uplink, struct{}] {
	return kvscheduler.Descriptor[wire.Uplink, struct{}]{
		Name: wire.KindUplink, Lane: Lane,
		Equal:    wire.Uplink.Equal,
		Validate: validateUplink,
		Deps: func(_ string, v wire.Uplink) []kvscheduler.Dep {
			deps := []kvscheduler.Dep{
				{Label: "network card", On: kvscheduler.Ref{Kind: wire.KindLink, Name: v.Card.Link}},
				{Label: "link to the dataplane", On: refOf(v.On), Mode: kvscheduler.Follow},
			}
			for _, key := range v.Needs {
				deps = append(deps, kvscheduler.Dep{Label: "dataplane", On: refOf(key)})
			}
			return deps
		},
		Recreate: func(have, want wire.Uplink) bool {
			return have.Card.Link != want.Card.Link || have.To != want.To || have.On != want.On
		},
		After:   []string{wire.KindLink, wire.KindVeth, wire.KindTapPeer},
		Backend: uplinks{},
	}
}

func validateUplink(name string, v wire.Uplink) error {
	switch {
	case name != v.Card.Link:
		return fmt.Errorf("the name is that of the network card, %s", v.Card.Link)
	case v.To == v.Card.Link:
		return errors.New("network card and link to the dataplane are the same")
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case len(v.Card.Addresses) == 0:
		return fmt.Errorf("network card %s has no address", v.Card.Link)
	case v.Drift != "":
		return errors.New("drift is found, and not desired")
	}
	for _, f := range v.Card.Families() {
		if !v.Gateway(f).IsValid() {
			return fmt.Errorf("the dataplane's end has no address of %s, and network card %s has", f, v.Card.Link)
		}
	}
	for _, r := range v.Card.Routes {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return fmt.Errorf("destination %s is not masked", r.Destination)
		}
	}
	for _, key := range append([]string{v.On}, v.Needs...) {
		if _, err := kvscheduler.ParseRef(key); err != nil {
			return err
		}
	}
	return errors.Join(validateLink(v.Card.Link), validateLink(v.To))
}

// Create moves addresses and routes from the cards to the links, or completes an interrupted move. What fails is moved back.
func (uplinks) Create(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error {
		err := takeCard(h, it.Want)
		if err == nil {
			return nil
		}
		if undo := giveBack(h, it.Want); undo != nil {
			return fmt.Errorf("%w, and giving network card %s back: %w", err, it.Want.Card.Link, undo)
		}
		return refused(err)
	})
}

// Update moves what is not moved, or not moved any more.
func (uplinks) Update(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error { return takeCard(h, it.Want) })
}

// Delete gives the cards back to the kernel.
func (uplinks) Delete(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error { return giveBack(h, it.Have) })
}

// eachUplink runs f for each item, with a netlink socket of the namespace of agent and dataplane.
func eachUplink(ctx context.Context, batch []uplinkItem, f func(*handle, *uplinkItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		it.Err = visit("", Place{}, func(h *handle) error { return f(h, it) })
	}
}

// GiveUplinkBack gives a network card back to the kernel, in the namespace of the caller, wherever its move was interrupted. The
// link to the dataplane is set down: a dataplane that still has the card would hand each packet over a second time.
func GiveUplinkBack(v wire.Uplink) error {
	return visit("", Place{}, func(h *handle) error {
		if err := giveBack(h, v); err != nil {
			return err
		}
		to, err := h.link(v.To)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err != nil {
			return err
		}
		return setUp(h, to, false)
	})
}

// RestoreCard gives a network card once more what it had, after its addresses and routes were moved off the link to the dataplane.
// That link may be another card's now.
func RestoreCard(card wire.Card) error {
	return visit("", Place{}, func(h *handle) error {
		l, err := h.link(card.Link)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err != nil {
			return err
		}
		return restoreCard(h, l, card)
	})
}

// UplinkIsMoved reports whether a network card is moved, or a part of it.
func UplinkIsMoved(v wire.Uplink) (moved bool, err error) {
	err = visit("", Place{}, func(h *handle) (err error) {
		_, moved, err = readUplink(h, v)
		return err
	})
	return moved, err
}

// Dump looks for all known cards.
func (b uplinks) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Uplink, struct{}], error] {
	var names []string
	for name := range view.All(wire.KindUplink) {
		names = append(names, name)
	}
	return b.Read(ctx, view, names)
}

// Read looks for the named cards.
func (uplinks) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.Uplink, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.Uplink, struct{}], error) bool) {
		for _, name := range names {
			v, known := knownUplink(view, kvscheduler.Ref{Kind: wire.KindUplink, Name: name})
			if !known {
				continue
			}
			found := false
			err := visit("", Place{}, func(h *handle) (err error) {
				v, found, err = readUplink(h, v)
				return errors.Join(err, ctx.Err())
			})
			if (found || err != nil) && !yield(kvscheduler.Actual[wire.Uplink, struct{}]{Name: name, V: v}, err) || err != nil {
				return
			}
		}
	}
}

// knownUplink is a card as it was applied, else as it is desired.
func knownUplink(view kvscheduler.View, ref kvscheduler.Ref) (wire.Uplink, bool) {
	v, _, ok := view.Applied(ref)
	if !ok {
		v, ok = view.Desired(ref)
	}
	u, is := v.(wire.Uplink)
	u.Drift = ""
	return u, ok && is
}
