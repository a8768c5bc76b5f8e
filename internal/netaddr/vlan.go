package netaddr

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// MaxVLAN is the highest VLAN (IEEE 802.1Q); 0 is a tag without VLAN, and 4095 is reserved.
const MaxVLAN = 4094

// VLANRange is a range of VLANs, both ends included.
type VLANRange struct{ First, Last int }

// String returns the form that ParseVLANs accepts.
func (r VLANRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// VLANs is a set of VLANs: ranges in order, without a common VLAN.
type VLANs []VLANRange

// ParseVLANs parses a list of VLANs, such as 300, and ranges, such as 100-199. No VLAN may occur twice.
func ParseVLANs(texts []string) (VLANs, error) {
	var vlans VLANs
	for _, text := range texts {
		r, err := parseVLANRange(text)
		if err != nil {
			return nil, err
		}
		vlans = append(vlans, r)
	}
	slices.SortFunc(vlans, func(a, b VLANRange) int { return cmp.Compare(a.First, b.First) })
	for n := 1; n < len(vlans); n++ {
		if vlans[n].First <= vlans[n-1].Last {
			return nil, fmt.Errorf("VLAN %d occurs twice", vlans[n].First)
		}
	}
	return vlans, nil
}

func parseVLANRange(text string) (r VLANRange, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var errs [2]error
	r.First, errs[0] = parseVLAN(first)
	r.Last, errs[1] = parseVLAN(last)
	switch {
	case errors.Join(errs[:]...) != nil:
		return r, fmt.Errorf("%.80q is neither a VLAN of 1 to %d nor a range such as 100-199", text, MaxVLAN)
	case r.Last < r.First:
		return r, fmt.Errorf("%.80q ends before it begins", text)
	}
	return r, nil
}

// errVLAN means that a text is not a VLAN.
var errVLAN = errors.New("not a VLAN")

// parseVLAN accepts no sign and no leading zero, so that a VLAN has one form.
func parseVLAN(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 16)
	if err != nil || id < 1 || id > MaxVLAN || text[0] == '0' {
		return 0, errVLAN
	}
	return int(id), nil
}

// Len returns the number of VLANs.
func (s VLANs) Len() (n int) {
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

// All lists the VLANs in order.
func (s VLANs) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, r := range s {
			for id := r.First; id <= r.Last; id++ {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// Contains reports whether a VLAN is in the set.
func (s VLANs) Contains(id int) bool {
	return slices.ContainsFunc(s, func(r VLANRange) bool { return r.First <= id && id <= r.Last })
}

// Missing returns the lowest VLAN that is not in another set; 0: the other set has all.
func (s VLANs) Missing(from VLANs) int {
	for id := range s.All() {
		if !from.Contains(id) {
			return id
		}
	}
	return 0
}

// Common returns the lowest VLAN that both sets have; 0: none.
func (s VLANs) Common(other VLANs) int {
	for id := range s.All() {
		if other.Contains(id) {
			return id
		}
	}
	return 0
}

// Strings returns the form that ParseVLANs accepts.
func (s VLANs) Strings() []string {
	var texts []string
	for _, r := range s {
		texts = append(texts, r.String())
	}
	return texts
}

// String returns the ranges with commas.
func (s VLANs) String() string { return strings.Join(s.Strings(), ", ") }

// MarshalJSON implements json.Marshaler: a list of texts.
func (s VLANs) MarshalJSON() ([]byte, error) { return json.Marshal(s.Strings()) }

// UnmarshalJSON implements json.Unmarshaler: a list of numbers, and of texts with a VLAN or a range.
func (s *VLANs) UnmarshalJSON(raw []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return fmt.Errorf(`expected a JSON list such as [300, "100-199"], not %.300q`, raw)
	}
	var texts []string
	for _, item := range items {
		text := string(item)
		if bytes.HasPrefix(item, []byte(`"`)) {
			if err := json.Unmarshal(item, &text); err != nil {
				return err
			}
		}
		texts = append(texts, text)
	}
	var err error
	*s, err = ParseVLANs(texts)
	return err
}
