package npwg_test

import (
	"encoding/json"
	"testing"

	"github.com/weftnet/weft/k8s/api/npwg"
)

// FuzzMultiNetworkPolicy reads a policy with any spec: it can be read, so that it hides no other policy of a list.
func FuzzMultiNetworkPolicy(f *testing.F) {
	f.Add([]byte(
		`{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}`))
	f.Add([]byte(
		`{"ingress": ["x", {"ports": [{"port": 99999999999}]}], "egress": {}, "podSelecter": {}, "policyTypes": "Egress"}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		if !json.Valid(spec) {
			return
		}
		raw, err := json.Marshal(map[string]any{
			"metadata": map[string]string{"namespace": "a", "name": "p"},
			"spec":     json.RawMessage(spec),
		})
		if err != nil {
			return
		}
		var o npwg.MultiNetworkPolicy
		if err := json.Unmarshal(raw, &o); err != nil || o.Namespace != "a" || o.Name != "p" {
			t.Errorf("%s: %v, read %+v", spec, err, o.ObjectMeta)
		}
	})
}

func TestUnreadablePartsOfAClaimAreEmpty(t *testing.T) {
	for spec, status := range map[string]string{
		`{"network": "blue", "interface": 7}`: `{"ips": ["10.5.0.7"]}`,
		`{"network": "blue"}`:                 `{"ips": ["10.5.0.7", {}]}`,
		`[]`:                                  `"x"`,
	} {
		raw := `{"metadata": {"name": "c"}, "spec": ` + spec + `, "status": ` + status + `}`
		var o npwg.IPAMClaim
		if err := json.Unmarshal([]byte(raw), &o); err != nil || o.Name != "c" || len(o.Unreadable) == 0 {
			t.Errorf("%s: %v, read %+v", raw, err, o)
		}
		if o.Spec.Network != "" && len(o.Status.IPs) > 0 {
			t.Errorf("%s: both parts are read: %+v", raw, o)
		}
	}
}
