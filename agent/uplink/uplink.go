// Package uplink takes the network card that the dataplane owns (dataplane.uplink) from the kernel, and returns it.
package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/renameio/v2"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Keeper keeps the card that the dataplane owns, and the files of cards.
type Keeper struct {
	link   string // of the configuration; "" if the kernel keeps all cards
	dir    string // of the files
	boot   string // ID of this boot
	health *health.Conditions
	log    *slog.Logger

	held     *heldCard   // of an earlier run that took the card of link
	card     *heldCard   // that Find found
	released []*heldCard // cards to return to the kernel
}

// Open reads the files of cards.
func Open(c config.Config, conditions *health.Conditions, log *slog.Logger) (*Keeper, error) {
	boot, err := statefile.ReadBootID(c.BootID)
	if err != nil {
		return nil, err
	}
	cards, err := readHeldCards(c.StateDir, boot)
	if err != nil {
		return nil, err
	}
	k := &Keeper{link: c.Dataplane.Uplink, dir: c.StateDir, boot: boot, health: conditions, log: log}
	for _, held := range cards {
		if held.Card.Link == k.link {
			k.held = held
		} else {
			k.released = append(k.released, held)
		}
	}
	return k, nil
}

// IsConfigured reports whether the dataplane owns a card.
func (k *Keeper) IsConfigured() bool { return k.link != "" }

// Card returns the card that the dataplane owns; nil if the kernel keeps all cards.
func (k *Keeper) Card() *wire.Card {
	if k.card == nil {
		return nil
	}
	return &k.card.Card
}

// Find reads the configured card. It waits until the card has addresses, because the node may have just booted.
func (k *Keeper) Find(ctx context.Context) error {
	attempt := func() (wire.Card, error) {
		card, err := read(k.link, k.held)
		if err == nil && len(card.Addresses) == 0 {
			err = fmt.Errorf("network card %s has no address", card.Link)
		}
		if err != nil && ctx.Err() == nil {
			k.log.Warn("uplink of the dataplane not found, retrying", "err", err)
			k.health.Set(health.Started, false, "waits for the uplink: "+err.Error())
		}
		return card, err
	}
	card, err := backoff.Retry(ctx, attempt, backoff.WithMaxElapsedTime(0))
	if err != nil {
		return err
	}
	k.health.Set(health.Started, false, health.FirstResync)
	k.card = &heldCard{Boot: k.boot, Card: card, To: desired.UplinkLink}
	k.log.Info("uplink of the dataplane", "link", k.link, "addresses", len(card.Addresses), "routes", len(card.Routes),
		"mtu", card.MTU)
	return nil
}

// Take writes the file of the card before the first resync moves it, and returns cards that the dataplane no longer
// owns.
func (k *Keeper) Take() error {
	for _, c := range k.released {
		if err := c.giveBack(); err != nil {
			return err
		}
		k.log.Info("uplink returned to the kernel", "link", c.Card.Link)
	}
	if k.card == nil {
		return linux.RemoveUplinkTable() // of a card with a lost file
	}
	return k.card.write(k.dir)
}

// Settle returns cards once more after the first resync: VPP sets a card that it releases down, and the kernel then
// drops the card's addresses and routes.
func (k *Keeper) Settle(view kvscheduler.View) error {
	isHeld := k.isHeldByDataplane(view)
	for _, c := range k.released {
		restore := c.giveBack
		if k.card != nil { // another card has the link to the dataplane and its rules now
			restore = func() error { return linux.RestoreCard(c.Card) }
		}
		if err := restore(); err != nil {
			return err
		}
		if isHeld {
			k.log.Warn("the dataplane has not released the uplink: the next start returns it once more",
				"link", c.Card.Link)
			continue
		}
		if err := c.forget(k.dir); err != nil {
			return err
		}
	}
	return nil
}

// isHeldByDataplane reports whether the dataplane has a card that it should not own, for example while pruning is
// suspended.
func (k *Keeper) isHeldByDataplane(view kvscheduler.View) bool {
	ref, err := kvscheduler.ParseRef(desired.UplinkKey())
	if err != nil || k.card != nil {
		return false
	}
	status, known := view.Status(ref)
	return known && status.Phase != kvscheduler.Absent
}

// Return returns the card to the kernel when Weft is uninstalled.
func (k *Keeper) Return() error {
	if k.card == nil {
		return nil
	}
	return k.card.release(k.dir)
}

// Release returns all cards of the dataplane to the kernel, on a node without a running agent, and lists them.
func Release(c config.Config) (links []string, err error) {
	if southbound.Answers(c.Socket) {
		return nil, errors.New(
			"the agent runs and would take the network card again: stop it first, or remove dataplane.uplink from its configuration and restart it")
	}
	boot, err := statefile.ReadBootID(c.BootID)
	if err != nil {
		return nil, err
	}
	cards, err := readHeldCards(c.StateDir, boot)
	for _, held := range cards {
		if err := held.release(c.StateDir); err != nil {
			return links, err
		}
		links = append(links, held.Card.Link)
	}
	return links, err
}

// The file of a card has its addresses and routes as the kernel had them:
//
//	Find: read the card ---> Take: write its file ---> first resync: linux.uplink moves addresses and routes
//	                                                            |
//	    key removed, uninstalled, weft-agent release-uplink: linux.ReleaseUplink, remove the file
//
// The file is durable before the first move, and is removed after everything is returned. After a kill in between the
// agent completes either by the file; both can be repeated. After a reboot the kernel has everything on the card again,
// and the file is outdated. It is separate from the state file: the loss of the state file must not cost the node an
// address.
const cardFiles = "card-*.json"

// heldCard is the content of the file of a card.
type heldCard struct {
	Boot string    `json:"boot"` // ID of the boot in which the card was taken
	Card wire.Card `json:"card"`
	To   string    `json:"to"` // the link that has its addresses and routes
}

// readHeldCards reads the files of this boot, and removes files of earlier boots.
func readHeldCards(dir, boot string) (cards []*heldCard, _ error) {
	paths, err := filepath.Glob(filepath.Join(dir, cardFiles))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("file of an uplink: %w", err)
		}
		held := new(heldCard)
		err = json.Unmarshal(raw, held)
		if err == nil && held.file(dir) != path {
			err = fmt.Errorf("it names the network card %q", held.Card.Link)
		}
		if err != nil {
			return nil, fmt.Errorf(
				"file of an uplink: %s: %w; reboot the node, or give the network card its addresses and remove the file",
				path, err)
		}
		if held.Boot == boot {
			cards = append(cards, held)
		} else if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

func (h *heldCard) file(dir string) string {
	return filepath.Join(dir, strings.Replace(cardFiles, "*", h.Card.Link, 1))
}

func (h *heldCard) write(dir string) error {
	raw, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(h.file(dir), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the file of uplink %s: %w", h.Card.Link, err)
	}
	return nil
}

// uplink returns the part of the card's object that is needed to return it.
func (h *heldCard) uplink() wire.Uplink { return wire.Uplink{Card: h.Card, To: h.To} }

// giveBack returns the addresses and routes to the card.
func (h *heldCard) giveBack() error {
	if err := linux.ReleaseUplink(h.uplink()); err != nil {
		return fmt.Errorf("return uplink %s to the kernel: %w", h.Card.Link, err)
	}
	return nil
}

// release returns the card and removes its file.
func (h *heldCard) release(dir string) error {
	if err := h.giveBack(); err != nil {
		return err
	}
	return h.forget(dir)
}

// forget removes the file of a card that was returned.
func (h *heldCard) forget(dir string) error {
	if err := os.Remove(h.file(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the addresses and routes of a card. For a card that the dataplane owns these are the ones from its file,
// and later ones.
func read(link string, held *heldCard) (wire.Card, error) {
	now, err := linux.ReadCard(link)
	if err != nil || held == nil {
		return now, err
	}
	moved, err := linux.UplinkIsMoved(held.uplink())
	if err != nil || !moved {
		return now, err
	}
	card := held.Card
	card.MAC = now.MAC
	card.MTU = now.MTU
	for _, a := range now.Addresses {
		if !slices.ContainsFunc(card.Addresses, func(k wire.CardAddress) bool { return k.Prefix == a.Prefix }) {
			card.Addresses = append(slices.Clone(card.Addresses), a)
		}
	}
	for _, r := range now.Routes {
		if !slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool {
			return k.Destination == r.Destination && k.Metric == r.Metric
		}) {
			card.Routes = append(slices.Clone(card.Routes), r)
		}
	}
	return card, nil
}
