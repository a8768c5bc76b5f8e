package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/renameio/v2"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// A network card that the dataplane owns (dataplane.uplink), and what the kernel had on it:
//
//	New: read the card ---> start: write its file ---> first resync: linux.uplink moves addresses and routes
//	                                                            |
//	    key removed, uninstalled, weft-agent release-uplink: linux.GiveUplinkBack, remove the file
//
// The file is durable before the first move, and is removed after everything is returned. After a kill in between the agent completes
// either by the file; both can be repeated. After a reboot the kernel has everything on the card again, and the file is outdated. It is
// separate from the state file, whose loss must not cost the node an address.
const cardFiles = "card-*.json"

// heldCard is the content of the file of a card.
type heldCard struct {
	Boot string    `json:"boot"` // in which the card was taken
	Card wire.Card `json:"card"`
	To   string    `json:"to"` // where its addresses and routes are
}

// readHeldCards reads the files of this boot, and removes those of earlier boots.
func readHeldCards(dir, boot string) (cards []*heldCard, _ error) {
	paths, err := filepath.Glob(filepath.Join(dir, cardFiles))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("what the uplink had: %w", err)
		}
		held := new(heldCard)
		err = json.Unmarshal(raw, held)
		if err == nil && held.file(dir) != path {
			err = fmt.Errorf("it is about the network card %q", held.Card.Link)
		}
		if err != nil {
			return nil, fmt.Errorf("what the uplink had: %s: %w; reboot the node, or give the network card its addresses and remove the file", path, err)
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
		return fmt.Errorf("write what uplink %s had: %w", h.Card.Link, err)
	}
	return nil
}

// uplink returns the part of the card's object that is needed to return it.
func (h *heldCard) uplink() wire.Uplink { return wire.Uplink{Card: h.Card, To: h.To} }

// of returns the card; nil if there is none.
func (h *heldCard) of() *wire.Card {
	if h == nil {
		return nil
	}
	return &h.Card
}

// giveBack returns the card to the kernel.
func (h *heldCard) giveBack() error {
	if err := linux.GiveUplinkBack(h.uplink()); err != nil {
		return fmt.Errorf("give uplink %s back: %w", h.Card.Link, err)
	}
	return nil
}

// forget removes the file after the card was returned.
func (h *heldCard) forget(dir string) error {
	if err := os.Remove(h.file(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func bootID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// assembleCard reads the network card that the dataplane will own. It waits until the card has addresses, because a node may have just
// booted.
func (a *Agent) assembleCard(ctx context.Context) error {
	boot, err := bootID(a.config.BootID)
	if err != nil {
		return err
	}
	cards, err := readHeldCards(a.config.StateDir, boot)
	if err != nil {
		return err
	}
	link := a.config.Dataplane.Uplink
	var held *heldCard
	for _, c := range cards {
		if c.Card.Link == link {
			held = c
		} else {
			a.released = append(a.released, c)
		}
	}
	if link == "" {
		return nil
	}
	var card wire.Card
	err = a.serveWhile(ctx, func(ctx context.Context) (err error) {
		card, err = a.awaitCard(ctx, held)
		return err
	})
	if err != nil {
		return err
	}
	a.card = &heldCard{Boot: boot, Card: card, To: desired.UplinkLink}
	a.log.Info("uplink of the dataplane", "link", link, "addresses", len(card.Addresses), "routes", len(card.Routes), "mtu", card.MTU)
	return nil
}

// awaitCard reads a card until it has addresses.
func (a *Agent) awaitCard(ctx context.Context, held *heldCard) (wire.Card, error) {
	read := func() (wire.Card, error) {
		card, err := readCard(a.config.Dataplane.Uplink, held)
		if err == nil && len(card.Addresses) == 0 {
			err = fmt.Errorf("network card %s has no address", card.Link)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("uplink of the dataplane not found, trying again", "err", err)
			a.health.Set(health.Started, false, "starting: waits for the uplink: "+err.Error())
		}
		return card, err
	}
	card, err := backoff.Retry(ctx, read, backoff.WithMaxElapsedTime(0))
	if err == nil {
		a.health.Set(health.Started, false, health.FirstResync)
	}
	return card, err
}

// readCard returns the addresses and routes of a card; of a card of the dataplane those that it had, and later ones.
func readCard(link string, held *heldCard) (wire.Card, error) {
	now, err := linux.ReadCard(link)
	if err != nil || held == nil {
		return now, err
	}
	moved, err := linux.UplinkIsMoved(held.uplink())
	if err != nil || !moved {
		return now, err
	}
	card := held.Card
	card.MAC, card.MTU = now.MAC, now.MTU
	for _, a := range now.Addresses {
		if !slices.ContainsFunc(card.Addresses, func(k wire.CardAddress) bool { return k.Prefix == a.Prefix }) {
			card.Addresses = append(slices.Clone(card.Addresses), a)
		}
	}
	for _, r := range now.Routes {
		if !slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool { return k.Destination == r.Destination && k.Metric == r.Metric }) {
			card.Routes = append(slices.Clone(card.Routes), r)
		}
	}
	return card, nil
}

// holdCard saves the state of the card before the first resync moves it, and returns cards that the dataplane no longer owns.
func (a *Agent) holdCard() error {
	for _, c := range a.released {
		if err := c.giveBack(); err != nil {
			return err
		}
		a.log.Info("uplink given back to the kernel", "link", c.Card.Link)
	}
	if a.card == nil {
		return linux.RemoveUplinkTable() // of a card whose file is lost
	}
	return a.card.write(a.config.StateDir)
}

// settleCards returns cards once more after the dataplane released them: VPP sets a card down, and the kernel then drops its addresses and
// routes.
func (a *Agent) settleCards() error {
	held := a.dataplaneHasCard()
	for _, c := range a.released {
		again := c.giveBack
		if a.card != nil { // another card has the link to the dataplane and its rules now
			again = func() error { return linux.RestoreCard(c.Card) }
		}
		if err := again(); err != nil {
			return err
		}
		if held {
			a.log.Warn("the dataplane has not let go of the uplink: it is given back once more at the next start", "link", c.Card.Link)
			continue
		}
		if err := c.forget(a.config.StateDir); err != nil {
			return err
		}
	}
	return nil
}

// dataplaneHasCard reports whether the dataplane has a card that it should not own, for example while nothing is pruned.
func (a *Agent) dataplaneHasCard() bool {
	ref, err := kvscheduler.ParseRef(desired.UplinkKey())
	if err != nil || a.card != nil {
		return false
	}
	status, known := a.scheduler.View().Status(ref)
	return known && status.Phase != kvscheduler.Absent
}

// ReleaseUplink returns the network cards of the dataplane to the kernel, on a node whose agent does not run, and lists them.
func ReleaseUplink(c config.Config) (links []string, err error) {
	if southbound.Answers(c.Socket) {
		return nil, errors.New("the agent runs and would take the network card again: stop it first, or remove dataplane.uplink from its configuration and start it anew")
	}
	boot, err := bootID(c.BootID)
	if err != nil {
		return nil, err
	}
	cards, err := readHeldCards(c.StateDir, boot)
	for _, held := range cards {
		if err = held.giveBack(); err == nil {
			err = held.forget(c.StateDir)
		}
		if err != nil {
			return links, err
		}
		links = append(links, held.Card.Link)
	}
	return links, err
}
