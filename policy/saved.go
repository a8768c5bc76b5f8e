package policy

import (
	"encoding/json"
	"net/netip"
)

// UnmarshalJSON reads a rule of the state file. Earlier versions wrote rules of one prefix and one range of ports.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	type plain Rule
	both := struct {
		*plain
		Remote   netip.Prefix `json:"remote"`
		Protocol uint8        `json:"protocol"`
		Single   Range        `json:"ports"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(raw, &both); err != nil {
		return err
	}
	if both.Remote.IsValid() {
		r.Remotes = []netip.Prefix{both.Remote}
		r.Ports = rangesOf(both.Protocol, both.Single)
	}
	return nil
}
