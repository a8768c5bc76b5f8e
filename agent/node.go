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
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// oneQuestion bounds a question for the node to the API server.
const oneQuestion = 5 * time.Second

// nodePatience is how long the API server may take to say what the node is, before what an earlier run knew serves. Pods
// that run do not notice; and a node that has just booted may reach its services a little later than it starts the agent.
const nodePatience = 5 * time.Second

// learnNode asks what the node is, until it is known, and finds its uplink: pods get their addresses and MTU from these.
func (a *Agent) learnNode(ctx context.Context) error {
	name, until := a.config.Kubernetes.Node, time.Now().Add(nodePatience)
	ask := func() (nodeview.Node, error) { return a.askForNode(ctx, name, until) }
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, nodePatience
	node, err := backoff.Retry(ctx, ask, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if a.uplink, err = a.findUplink(ctx, node.Addresses); err != nil {
		return err
	}
	a.health.Advise(health.Uplink)
	a.health.Advise(health.Announcements)
	a.expectAnnouncement(node.UID)
	if !a.wantsRanges() {
		return nil
	}
	a.ranges = rangesOf(node)
	a.log.Info("pools are the node's ranges", "node", name, "pools", fmt.Sprint(a.ranges))
	return config.ValidatePools(a.ranges)
}

// askForNode asks once. Where the API server is away for longer, what was known before serves: but not if the API server says
// that the node is gone or another one, for its ranges may be another node's by now.
func (a *Agent) askForNode(ctx context.Context, name string, until time.Time) (nodeview.Node, error) {
	question, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	node, err := nodeview.ReadNode(question, a.client, name)
	known := a.cluster.View().Node
	isKnown := known.UID != "" && a.suffices(name, known) == nil
	switch {
	case err == nil:
		err = a.suffices(name, node)
		isKnown = isKnown && node.UID == known.UID
	case errors.Is(err, nodeview.ErrNoNode):
		isKnown = false
	default:
		isKnown = isKnown && !time.Now().Before(until)
	}
	switch {
	case err == nil:
		return node, nil
	case isKnown:
		a.log.Warn("the API server was not asked what the node is, what was known serves", "node", name, "err", err)
		return known, nil
	}
	a.log.Warn("what the node is in the cluster is not known yet, trying again", "node", name, "err", err)
	a.health.Set(health.Started, false, "starting: waits for the API server to say what the node is: "+err.Error())
	return node, err
}

// suffices says what is not known of the node, and is needed.
func (a *Agent) suffices(name string, n nodeview.Node) error {
	if _, has := a.outerAddress(n.Addresses); !has && a.config.Kubernetes.RequireUplink {
		return errUnreachable
	}
	if !a.wantsRanges() {
		return nil
	}
	return n.HasRanges(name)
}

// A network card that the dataplane owns (dataplane.uplink), and what the kernel had on it:
//
//	New: read the card ---> start: write its file ---> first resync: linux.uplink moves addresses and routes
//	                                                            |
//	    key removed, uninstalled, weft-agent release-uplink: linux.GiveUplinkBack, remove the file
//
// The file is durable before anything is moved, and is removed after all is given back. An agent that was killed in between
// finds what the card had in the file, and completes the one or the other: both can be repeated. After a reboot the kernel has
// everything on the card again, and the file says nothing. It stands beside the state file, which may get lost: then an address
// of the node must not.
const cardFiles = "card-*.json"

// heldCard is what the file of a card says.
type heldCard struct {
	Boot string    `json:"boot"` // in which the card was taken
	Card wire.Card `json:"card"`
	To   string    `json:"to"` // where its addresses and routes are
}

// readHeldCards reads the files of this boot, and removes those of earlier ones.
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

// uplink is as much of the card's object as giving it back takes.
func (h *heldCard) uplink() wire.Uplink { return wire.Uplink{Card: h.Card, To: h.To} }

// of is the card; nil if there is none.
func (h *heldCard) of() *wire.Card {
	if h == nil {
		return nil
	}
	return &h.Card
}

// giveBack gives the card back to the kernel.
func (h *heldCard) giveBack() error {
	if err := linux.GiveUplinkBack(h.uplink()); err != nil {
		return fmt.Errorf("give uplink %s back: %w", h.Card.Link, err)
	}
	return nil
}

// forget removes the file, after the card was given back.
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

// assembleCard finds out what the network card has that the dataplane is to own; it waits for a card without addresses, which a
// node has that has just booted.
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

// readCard is what a card has, or if it is taken, what it had, and what came since.
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

// holdCard makes durable what the card has, before the first resync moves it, and gives back cards that are no longer the
// dataplane's.
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

// settleCards gives cards back once more, after the dataplane has let go of them: VPP sets a card down when it does, and the
// kernel forgets what a card has that is down.
func (a *Agent) settleCards() error {
	held := a.dataplaneHasCard()
	for _, c := range a.released {
		again := c.giveBack
		if a.card != nil { // the link to the dataplane and its rules are another card's now
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

// dataplaneHasCard reports whether the dataplane has a card that it is not to have, as where nothing is pruned.
func (a *Agent) dataplaneHasCard() bool {
	ref, err := kvscheduler.ParseRef(desired.UplinkKey())
	if err != nil || a.card != nil {
		return false
	}
	status, known := a.scheduler.View().Status(ref)
	return known && status.Phase != kvscheduler.Absent
}

// ReleaseUplink gives the network cards that the dataplane owned back to the kernel, for a node whose agent does not run, and
// says which.
func ReleaseUplink(c config.Config) (links []string, err error) {
	if answers(c.Socket) {
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

// settings is where the kernel's settings are. Those of interfaces are written there, in pods' namespaces and the node's.
const settings = "/proc/sys"

// openSettings makes a read-only file system of settings writable: a runtime mounts it so for containers that are not
// privileged. Only this container's view of it changes.
func openSettings(at string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", at, err)
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|kept, ""); err != nil {
		return fmt.Errorf("make %s writable: %w; it needs the capability SYS_ADMIN and no AppArmor profile that forbids mounts", at, err)
	}
	return nil
}
