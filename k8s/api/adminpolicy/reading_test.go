package adminpolicy_test

import (
	"encoding/json"
	"testing"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
)

// FuzzAdminNetworkPolicy reads policies with any spec: they can be read, so that they hide no other policy of a list.
func FuzzAdminNetworkPolicy(f *testing.F) {
	f.Add([]byte(
		`{"priority": 5, "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]}]}`))
	f.Add([]byte(`{"priority": "5", "subject": [], "ingress": ["x", {"action": 7}], "egress": {}, "tier": "Admin"}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		if !json.Valid(spec) {
			return
		}
		raw, err := json.Marshal(map[string]any{
			"metadata": map[string]string{"name": "p"},
			"spec":     json.RawMessage(spec),
		})
		if err != nil {
			return
		}
		var admin adminpolicy.AdminNetworkPolicy
		if err := json.Unmarshal(raw, &admin); err != nil || admin.Name != "p" {
			t.Errorf("%s: %v, read %+v", spec, err, admin.ObjectMeta)
		}
		var baseline adminpolicy.BaselineAdminNetworkPolicy
		if err := json.Unmarshal(raw, &baseline); err != nil || baseline.Name != "p" {
			t.Errorf("%s: %v, read %+v", spec, err, baseline.ObjectMeta)
		}
	})
}
