package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// The annotations for extra interfaces.
const (
	customInterfaces = "contivpp.io/custom-if"
	customOptions    = "contivpp.io/custom-if-options"
)

// networks returns the networks of the demo. Blue and green have the same addresses.
func networks() []node.Network {
	same := []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24"), netip.MustParsePrefix("fd00:5::/64")}
	others := []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24"), netip.MustParsePrefix("fd00:6::/64")}
	return []node.Network{
		{Name: "blue", Type: "L2", CIDRs: same}, {Name: "green", Type: "L2", CIDRs: same},
		{Name: "red", Type: "L3", CIDRs: others},
	}
}

// extras are the extra interfaces of A and B.
func extras() []string { return []string{"blue0", "red0"} }

// reachOnNetworks pings in each direction by each extra interface, in both families.
func (d *demo) reachOnNetworks(ctx context.Context) error {
	for _, link := range extras() {
		if err := d.reachBy(ctx, link, &d.a, &d.b); err != nil {
			return err
		}
		if err := d.reachBy(ctx, link, &d.b, &d.a); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) reachBy(ctx context.Context, link string, from, to *attachedPod) error {
	for _, address := range to.on(link).Bare() {
		took, err := reach(ctx, from.Netns, link, address)
		if err != nil {
			return fmt.Errorf("%s -> %s by %s: %w", from.Name, to.Name, link, err)
		}
		d.printf("%s -> %s by %-5s  %-20s answers in %s", from.Name, to.Name, link, address, short(took))
	}
	return nil
}

// megabytes is the size of a transfer.
const megabytes = 100

// transferAll sends data from A to B by each interface, in both families, and compares the received data.
func (d *demo) transferAll(ctx context.Context) error {
	data := make([]byte, megabytes*1000*1000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	sum := sha256.Sum256(data)
	for _, l := range d.b.links {
		for _, to := range l.Bare() {
			p := traffic.Path{From: d.a.Netns, FromLink: l.Name, To: d.b.Netns, Address: to}
			r, err := traffic.Transfer(ctx, p, data)
			if err != nil {
				return fmt.Errorf("a -> b by %s: %w", l.Name, err)
			}
			if r.Sum != sum {
				return fmt.Errorf("a -> b by %s: %d bytes arrived for %d, and with SHA-256 %x for %x", l.Name, r.Bytes,
					len(data), r.Sum, sum)
			}
			d.printf("a -> b by %-5s  %-20s %d MB in %s, %.1f Gbit/s", l.Name, to, megabytes, short(r.Took),
				r.Gigabits())
		}
	}
	d.printf("SHA-256 of all of them: %x", sum)
	return nil
}

// addE adds a pod with the addresses on green that A has on blue.
func (d *demo) addE(ctx context.Context) error {
	options, err := json.Marshal(map[string]any{"green0": map[string]any{"ips": d.a.on("blue0").Bare()}})
	if err != nil {
		return err
	}
	d.e.Annotations = map[string]string{
		customInterfaces: "green0/" + dataplane.Tap() + "/green",
		customOptions:    string(options),
	}
	if err := d.add(ctx, &d.e); err != nil {
		return err
	}
	got := fmt.Sprint(d.e.on("green0").Addresses)
	want := fmt.Sprint(d.a.on("blue0").Addresses)
	if got != want {
		return fmt.Errorf("pod E has %s on green, not A's %s", got, want)
	}
	return nil
}
