package pod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// parseOptions reads the annotation of options: JSON, interface name -> options. Unknown keys, and what occurs twice, are
// refused by name.
func parseOptions(text string) (map[string]InterfaceOptions, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", AnnotationOptions, len(text), maxAnnotation)
	}
	items, err := members([]byte(text))
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: expected JSON, interface name -> options: %w", AnnotationOptions, err)
	}
	options := map[string]InterfaceOptions{}
	for _, item := range items {
		o, err := parseOption(item.value)
		if err != nil {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %.80q: %w", AnnotationOptions, item.name, err)
		}
		options[item.name] = o
	}
	return options, nil
}

func parseOption(raw json.RawMessage) (o InterfaceOptions, err error) {
	keys, err := members(raw)
	if err != nil {
		return o, err
	}
	for _, key := range keys {
		if err := o.set(key.name, key.value); err != nil {
			return o, fmt.Errorf("%.80s: %w", key.name, err)
		}
	}
	return o, nil
}

func (o *InterfaceOptions) set(key string, raw json.RawMessage) error {
	switch key {
	case "mtu":
		return o.setMTU(raw)
	case "mac":
		return o.setMAC(raw)
	case "ips":
		return o.setIPs(raw)
	case "rxQueues":
		return span{1, MostQueues, "queues"}.read(&o.RxQueues, raw)
	case "txQueues":
		return span{1, MostQueues, "queues"}.read(&o.TxQueues, raw)
	}
	if set, known := memifOptions[key]; known {
		return set(&o.Memif, raw)
	}
	return errors.New("unknown option; known are ips, mac, mtu, rxQueues and txQueues, and for a memif " + strings.Join(sortedKeys(memifOptions), ", "))
}

func (o *InterfaceOptions) setMTU(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &o.MTU); err != nil || o.MTU < 576 || o.MTU > 9000 {
		return fmt.Errorf("expected 576 to 9000 bytes, not %.300q", raw)
	}
	return nil
}

func (o *InterfaceOptions) setMAC(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &o.MAC); err != nil {
		return fmt.Errorf("expected a MAC, not %.300q", raw)
	}
	mac, err := net.ParseMAC(o.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return fmt.Errorf("expected a unicast MAC of 6 octets, not %.300q", raw)
	}
	o.MAC = mac.String()
	return nil
}

func (o *InterfaceOptions) setIPs(raw json.RawMessage) (err error) {
	o.IPs, err = parsePrefixes(raw)
	return err
}

// parsePrefixes reads a JSON list of addresses, at most one a family. One without a prefix length has the longest.
func parsePrefixes(raw []byte) ([]netip.Prefix, error) {
	var texts []string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return nil, fmt.Errorf("expected a JSON list of addresses, not %.300q", raw)
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		p, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(prefixes, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }) {
			return nil, fmt.Errorf("%s is the second address of its family, one each is possible", p.Addr())
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// ParseAddress reads an address, with or without a prefix length. Without one it has the longest.
func ParseAddress(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(text)
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
		if a.Zone() != "" {
			err = errors.New("it has a zone")
		}
	}
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%.300q is not an IPv4 or IPv6 address", text)
	}
	return p, nil
}

type member struct {
	name  string
	value json.RawMessage
}

// members reads a JSON object in the order of its text and refuses a name that is there twice: encoding/json would take
// the last one in silence.
func members(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	var all []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%.80q: %w", m.name, err)
		}
		if slices.ContainsFunc(all, func(o member) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("%.80q is there twice", m.name)
		}
		all = append(all, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object does not end")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return all, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
