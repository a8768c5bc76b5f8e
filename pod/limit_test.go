package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestRatesAreQuantitiesOfKubernetes(t *testing.T) {
	for text, want := range map[string]uint32{
		"1k": 1, "1000": 1, "1999": 1, "10M": 10_000, "1.5G": 1_500_000, "1Ki": 1, "1Mi": 1048, "1e6": 1000,
		"1E6":   1000,
		"2.5e3": 2, "+1M": 1000, ".5M": 500, "5.M": 5000, "4T": 4_000_000_000, "1000000e-3": 1, "0.000001P": 1_000_000,
	} {
		if got, err := parseKilobits(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"999": "expected 1k to 4T", "0": "expected 1k to 4T", "4.1T": "expected 1k to 4T", "1E": "expected 1k to 4T",
		"1e99": "expected 1k to 4T", "1e-99": "expected 1k to 4T",
		"": "expected a quantity", "M": "expected a quantity", "10K": "expected a quantity",
		"-1M":  "expected a quantity",
		"10 M": "expected a quantity", " 10M": "expected a quantity", "1e6k": "expected a quantity",
		"100m": "expected a quantity", "1/2": "expected a quantity", "0x10": "expected a quantity",
		"1e1000": "expected a quantity", "1_0M": "expected a quantity", "1..5M": "expected a quantity",
		"inf": "expected a quantity", "10Mbit": "expected a quantity", "1e": "expected a quantity",
		strings.Repeat("9", 33): "expected a quantity",
	} {
		if _, err := parseKilobits(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Annotations are as long as the API server permits, and are read while all pods of the node wait: no text makes large
// numbers.
func TestQuantitiesAreRefusedWithoutWork(t *testing.T) {
	annotations := make(map[string]string)
	for i := range 100 {
		annotations[fmt.Sprintf("kubernetes.io/%d-bandwidth", i)] = "0x1p-9999999"
	}
	for name, refuse := range map[string]func() error{
		"an exponent":   func() error { _, err := parseKilobits("0x1p-9999999"); return err },
		"digits":        func() error { _, err := parseKilobits("1." + strings.Repeat("7", 100_000)); return err },
		"many suffixes": func() error { _, err := parseKilobits(strings.Repeat("1e9k", 50_000)); return err },
		"annotations":   func() error { return LimitProblems(annotations)[0].Err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := refuse()
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || allocated > 1<<20 {
			t.Errorf("%s: error %.200v after %d bytes of memory", name, err, allocated)
		}
	}
}

// textOfLimits is the JSON of limits.
func textOfLimits(t *testing.T, l Limits) string {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLimitsOfOptions(t *testing.T) {
	for text, want := range map[string]string{
		`{"rate": "100M"}`:                 `{"ingress":{"kilobits":100000},"egress":{"kilobits":100000}}`,
		`{"rate": 100000000}`:              `{"ingress":{"kilobits":100000},"egress":{"kilobits":100000}}`,
		`{"rate": {"egress": "10M"}}`:      `{"egress":{"kilobits":10000}}`,
		`{"rate": "1M", "burst": "9.5k"}`:  `{"ingress":{"kilobits":1000,"burst":9500},"egress":{"kilobits":1000,"burst":9500}}`,
		`{"dscp": 46}`:                     `{"dscp":46}`,
		`{"dscp": 0}`:                      `{"dscp":0}`,
		`{"dscp": "ef"}`:                   `{"dscp":46}`,
		`{"dscp": "63"}`:                   `{"dscp":63}`,
		`{"dscp": "AF41", "rate": "1e6k"}`: "rate: expected a quantity",
		`{"rate": "1M", "burst": {"ingress": "10k", "egress": 20000}}`: `{"ingress":{"kilobits":1000,"burst":10000},` +
			`"egress":{"kilobits":1000,"burst":20000}}`,
		`{"rate": {"ingres": "1M"}}`:                          `"ingres": unknown direction; known are ingress and egress`,
		`{"rate": {"ingress": "1"}}`:                          "rate: ingress: expected 1k to 4T",
		`{"rate": ["1M"]}`:                                    `rate: expected a quantity such as "100M", or {"ingress"`,
		`{"rate": true}`:                                      `rate: expected a quantity such as "100M", or {"ingress"`,
		`{"rate": null}`:                                      `rate: expected a quantity such as "100M", or {"ingress"`,
		`{"rate": ""}`:                                        `rate: expected a quantity such as "100M", or {"ingress"`,
		`{"burst": "10k"}`:                                    "burst: it needs a rate in the same direction",
		`{"rate": {"ingress": "1M"}, "burst": "10k"}`:         "burst: it needs a rate in the same direction",
		`{"rate": "1M", "burst": 1293, "mtu": 1280}`:          "burst: 1293 bytes, and a packet of MTU 1280 has 1294",
		`{"rate": "1M", "burst": 1294, "mtu": 1281}`:          "burst: 1294 bytes, and a packet of MTU 1281 has 1295",
		`{"rate": "1M", "burst": "5G"}`:                       "burst: expected 1 to 4G bytes",
		`{"dscp": 64}`:                                        "dscp: expected 0 to 63, or a class",
		`{"dscp": -1}`:                                        "dscp: expected 0 to 63, or a class",
		`{"dscp": "gold"}`:                                    "dscp: expected 0 to 63, or a class",
		`{"dscp": null}`:                                      "dscp: expected 0 to 63, or a class",
		`{"rate": {"ingress": "1M", "ingress": "1M"}}`:        "expected a quantity",
		`{"rate": {"ingress": {}}}`:                           "rate: ingress: expected a quantity",
		`{"rate": {"egress": "1M"}, "burst": {"egress": 20}}`: "burst: 20 bytes",
	} {
		o, err := ParseOptions(text)
		if err == nil {
			err = o.ValidateFor(TypeVeth)
		}
		got := textOfLimits(t, o.Limits)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestCapabilityBandwidth(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"ingressRate": 0, "ingressBurst": 0, "egressRate": 0}`: `{}`,
		`{"ingressRate": 1000000, "ingressBurst": 80001}`:        `{"ingress":{"kilobits":1000,"burst":10001}}`,
		`{"egressRate": 1000000, "egressBurst": 4294967295}`:     `{"egress":{"kilobits":1000}}`,
		`{"egressRate": 1000000, "egressBurst": 34359738360}`:    `{"egress":{"kilobits":1000}}`,
		`{"ingressBurst": 1000}`:                                 "burst: it needs a rate",
		`{"ingressRate": 1}`:                                     "ingressRate: expected 1k to 4T",
		`{"ingressRate": -1}`:                                    "ingressRate: expected a number of bits",
		`{"ingressRate": "1M"}`:                                  "ingressRate: expected a number of bits",
		`{"ingressRate": 1000, "shapedSubnets": ["10.0.0.0/8"]}`: `"shapedSubnets": unknown key; known are egressBurst`,
		`{"ingressRate": 1000, "unshapedSubnets": []}`:           `{"ingress":{"kilobits":1}}`,
		`[]`: "expected a JSON object",
	} {
		l, err := ParseBandwidth([]byte(text))
		got := textOfLimits(t, l)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestLimitsOfTheMainInterface(t *testing.T) {
	const in, out = AnnotationIngress, AnnotationEgress
	main := Key{Network: "weft", ContainerID: "c", IfName: "eth0"}
	of := func(in, out uint32) Limits { return Limits{Ingress: Rate{Kilobits: in}, Egress: Rate{Kilobits: out}} }
	for name, tt := range map[string]struct {
		request Request
		want    string
	}{
		"of annotations": {
			Request{Key: main, Annotations: map[string]string{in: "10M", out: "1M", "other": "x"}},
			`{"ingress":{"kilobits":10000},"egress":{"kilobits":1000}}`,
		},
		"empty": {Request{Key: main, Annotations: map[string]string{in: " ", out: ""}}, `{}`},
		"invalid": {
			Request{Key: main, Annotations: map[string]string{in: "10", out: "x"}},
			`annotation kubernetes.io/egress-bandwidth: expected a quantity such as 100M or 1.5Gi, not "x"`,
		},
		"unknown": {
			Request{Key: main, Annotations: map[string]string{"kubernetes.io/in-bandwidth": "1M"}},
			"annotation kubernetes.io/in-bandwidth: unknown limit; known are kubernetes.io/ingress-bandwidth and " + out,
		},
		"of another plugin": {Request{Key: main, Mode: ModeChained, Annotations: map[string]string{in: "x"}}, `{}`},
		"of eth0 that Multus requests as its default network": {
			Request{Key: main, Mode: ModeDelegate, Annotations: map[string]string{in: "10M"}},
			`{"ingress":{"kilobits":10000}}`,
		},
		"of another interface": {
			Request{Key: Key{"weft", "c", "net1"}, Mode: ModeDelegate, Annotations: map[string]string{in: "x"}}, `{}`,
		},
		"of the runtime, which agrees": {
			Request{Key: main, Annotations: map[string]string{in: "10M", out: "2M"}, Requested: Requested{
				Limits: Limits{Ingress: Rate{10_000, 9000}},
			}},
			`{"ingress":{"kilobits":10000,"burst":9000},"egress":{"kilobits":2000}}`,
		},
		"of the runtime, which does not agree": {
			Request{Key: main, Annotations: map[string]string{in: "10M"}, Requested: Requested{Limits: of(20_000, 0)}},
			"annotation " + in + ": 10 Mbit/s, and the capability bandwidth of the runtime has 20 Mbit/s: they must be",
		},
		"of the runtime before those of the options": {
			Request{Key: Key{"weft", "c", "net1"}, Mode: ModeDelegate, Requested: Requested{
				Limits: of(1, 0), Options: InterfaceOptions{Limits: of(2, 3)},
			}},
			`{"ingress":{"kilobits":1},"egress":{"kilobits":3}}`,
		},
	} {
		l, err := tt.request.MainLimits()
		got := textOfLimits(t, l)
		if err != nil {
			got = err.Error()
			if coded := new(Error); !errors.As(err, &coded) || coded.Code != CodeInvalidAnnotation {
				t.Errorf("%s: no code 103: %v", name, err)
			}
		}
		if err == nil && got != tt.want || err != nil && !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestDefaultBurst(t *testing.T) {
	for rate, want := range map[Rate]uint32{
		{1000, 0}: 80_000, {100_000, 0}: 3_125_000, {4_000_000_000, 0}: 4_294_967_295, {1000, 1500}: 1500,
	} {
		if got := rate.Depth(); got != want {
			t.Errorf("%+v: %d, want %d", rate, got, want)
		}
	}
}

// A selection's bandwidth precedes the rate of the definition.
func TestBandwidthOfASelection(t *testing.T) {
	all, err := Selections(selecting(`[{"name":"a","bandwidth":{"ingressRate":1000000}},{"name":"a"}]`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	dscp := uint8(46)
	d := Definition{Options: InterfaceOptions{
		Limits: Limits{Ingress: Rate{Kilobits: 5}, Egress: Rate{Kilobits: 7}, DSCP: &dscp},
	}}
	for n, want := range []string{
		`{"ingress":{"kilobits":1000},"egress":{"kilobits":7},"dscp":46}`,
		`{"ingress":{"kilobits":5},"egress":{"kilobits":7},"dscp":46}`,
	} {
		if got := textOfLimits(t, d.Request(all[n]).Options.Limits); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestDirectNetworksHaveNoLimits(t *testing.T) {
	n := Network{Name: "wire", Direct: true}
	r := InterfaceRequest{Name: "m1", Type: TypeMemif, Network: "wire"}
	if err := n.Suits(r); err != nil {
		t.Error(err)
	}
	r.Options.Limits.Ingress.Kilobits = 1
	if err := n.Suits(r); err == nil || !strings.Contains(err.Error(), "cannot limit or mark them") {
		t.Errorf("error %v", err)
	}
}
