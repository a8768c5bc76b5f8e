package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestInterfaceRequestsKeepTheirOrder(t *testing.T) {
	got, err := InterfaceRequests(map[string]string{
		AnnotationCustom: " t1/tap, v1/veth/stub ,m1 / memif / blue",
		AnnotationOptions: `{"t1":{"mtu":1400,"mac":"02-00-00-00-00-01","ips":["10.5.0.7","fd00::7"],"rxQueues":2},
			"v1":{"rxQueues":1,"txQueues":3}}`,
	}, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	want := `[{t1 tap default {1400 {02:00:00:00:00:01 [10.5.0.7/32 fd00::7/128]  false} 2 0 [] false  false false {[] []} []   { 0 0   <nil> <nil>}}   } {v1 veth stub {0 { []  false} 1 3 [] false  false false {[] []} []   { 0 0   <nil> <nil>}}   } {m1 memif blue {0 { []  false} 0 0 [] false  false false {[] []} []   { 0 0   <nil> <nil>}}   }]` //nolint:dupword // booleans
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

func TestAnEmptyAnnotationRequestsNoInterface(t *testing.T) {
	for _, text := range []string{"", "  "} {
		if got, err := InterfaceRequests(map[string]string{AnnotationCustom: text}, "eth0"); err != nil || got != nil {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

// Regression (finding 11): the kernel rejects the name default, and the pod got the error of the dataplane.
func TestFinding11AnnotationsRejectTheNameDefault(t *testing.T) {
	_, err := InterfaceRequests(map[string]string{AnnotationCustom: "default/tap"}, "eth0")
	if err == nil || !strings.Contains(err.Error(), `item "default/tap": the name must be a Linux interface name`) {
		t.Errorf("custom-if: %v", err)
	}
	if _, err = Selections(map[string]string{AnnotationNetworks: "blue@default"}, "ns"); err == nil ||
		!strings.Contains(err.Error(), "not lo, all or default") {
		t.Errorf("networks: %v", err)
	}
}

// Regression (finding 11): an error quoted all of an annotation of 16 KiB. A cut would have lost its reason.
func TestFinding11ErrorOfALongAnnotationIsBoundedAndHasItsReason(t *testing.T) {
	long := strings.Repeat("é", 8000)
	for want, annotations := range map[string]map[string]string{
		"expected name/type":   {AnnotationCustom: long},
		"is not an interface":  {AnnotationOptions: `{"` + long + `":{}}`},
		"unknown option":       {AnnotationCustom: "t1/tap", AnnotationOptions: `{"t1":{"` + long + `":1}}`},
		"expected 576 to 9600": {AnnotationCustom: "t1/tap", AnnotationOptions: `{"t1":{"mtu":"` + long + `"}}`},
		"not an IPv4 or IPv6":  {AnnotationCustom: "t1/tap", AnnotationOptions: `{"t1":{"ips":["` + long + `"]}}`},
		"the name of a container": {
			AnnotationCustom:  "t1/memif",
			AnnotationOptions: `{"t1":{"container":"` + long + `"}}`,
		},
	} {
		_, err := InterfaceRequests(annotations, "eth0")
		if err == nil || len(err.Error()) > 2048 || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %.4000v", want, err)
		}
	}
}

func TestInvalidAnnotationsAreRejectedByItem(t *testing.T) {
	for _, tc := range []struct{ custom, options, want string }{
		{"t1", "", `item "t1": expected name/type`},
		{"t1/tap/a/b", "", "expected name/type"},
		{"t1/tap,", "", `item "": expected name/type`},
		{"t1/vhost", "", "the type must be tap, veth or memif"},
		{"sixteenbyteslong/tap", "", "1 to 15 bytes"},
		{"a b/tap", "", "no slash, colon or blank"},
		{"lo/tap", "", "must be a Linux interface name"},
		{"all/tap", "", "not lo, all or default"},
		{"../tap", "", "must be a Linux interface name"},
		{"a:b/tap", "", "must be a Linux interface name"},
		{"eth%d/tap", "", "must be a Linux interface name"},
		{"t1/tap/Blue", "", "the network must be"},
		{"t1/tap,t1/veth", "", `item "t1/veth": the name is taken`},
		{"eth0/tap", "", "the name is taken"},
		{strings.Repeat("a/tap,", 16) + "b/tap", "", "at most 16"},
		{strings.Repeat("x", maxAnnotation+1), "", "at most 16384"},
		{"t1/tap", `{"t2":{}}`, `"t2" is not an interface`},
		{"t1/tap", `{"t1":{"speed":1}}`, `"t1": speed: unknown option`},
		{"t1/tap", `{"t1":{"mtu":100}}`, "mtu: expected 576 to 9600"},
		{"t1/tap", `{"t1":{"ringSize":1024}}`, `"t1": ringSize: only an interface of type memif`},
		{"t1/tap", `{"t1":{"gid":0}}`, `"t1": gid: only an interface of type memif`},
		{"m1/memif", `{"m1":{"ringSize":1000}}`, "ringSize: expected a power of two"},
		{"m1/memif", `{"m1":{"ringSize":32768}}`, "ringSize: expected 2 to 16384 slots"},
		{"m1/memif", `{"m1":{"bufferSize":1}}`, "bufferSize: expected 64 to 65536 bytes"},
		{"m1/memif", `{"m1":{"rxQueues":0}}`, "rxQueues: expected 1 to 255 queues"},
		{"t1/tap", `{"t1":{"rxQueues":256}}`, "rxQueues: expected 1 to 255 queues"},
		{
			"t1/tap", `{"t1":{"rxQueues":2,"txQueues":1}}`,
			`"t1": rxQueues is 2 and txQueues is 1: a tap has equal numbers of both`,
		},
		{"v1/veth", `{"v1":{"txQueues":0}}`, "txQueues: expected 1 to 255 queues"},
		{"m1/memif", `{"m1":{"txQueues":"2"}}`, "txQueues: expected 1 to 255 queues"},
		{"m1/memif", `{"m1":{"mode":"punt"}}`, `mode: expected "ethernet" or "ip"`},
		{"m1/memif", `{"m1":{"uid":-1}}`, "uid: expected a number from 0"},
		{"m1/memif", `{"m1":{"gid":4294967295}}`, "gid: expected a number from 0"},
		{"m1/memif", `{"m1":{"container":"A b"}}`, "container: expected the name of a container"},
		{"t1/tap", `{"t1":{"mac":"01:00:00:00:00:01"}}`, "mac: expected a unicast MAC"},
		{"t1/tap", `{"t1":{"ips":["10.0.0.300"]}}`, `"10.0.0.300" is not an IPv4 or IPv6 address`},
		{"t1/tap", `{"t1":{"ips":["10.0.0.3","10.0.0.4"]}}`, "second address of its family"},
		{"t1/tap", `{"t1":{},"t1":{}}`, `"t1" occurs twice`},
		{"t1/tap", `{"t1":{}} x`, "unexpected text after"},
		{"t1/tap", `[]`, "expected a JSON object"},
		{"t1/tap", `{"t1":`, "expected JSON"},
	} {
		t.Run(tc.custom[:min(len(tc.custom), 20)]+tc.options, func(t *testing.T) {
			_, err := InterfaceRequests(map[string]string{AnnotationCustom: tc.custom, AnnotationOptions: tc.options},
				"eth0")
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalidAnnotation || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want code 103 with %q", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), AnnotationPrefix) {
				t.Errorf("%v does not name the annotation", err)
			}
		})
	}
}

// FuzzInterfaceRequests parses arbitrary annotations. Accepted requests are valid, and errors are one line.
func FuzzInterfaceRequests(f *testing.F) {
	f.Add("t1/tap, m1/memif/blue", `{"t1":{"mtu":1400,"ips":["10.0.0.1"]}}`)
	f.Add("/", `{"":{}}`)
	f.Add("t1/tap", "{\"t1\":{\"ips\":[\n5]}}")
	f.Fuzz(func(t *testing.T, custom, options string) {
		got, err := InterfaceRequests(map[string]string{AnnotationCustom: custom, AnnotationOptions: options}, "eth0")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		names := map[string]bool{"eth0": true}
		for _, r := range got {
			if names[r.Name] || !IsLinkName(r.Name) || !IsLabel(r.Network) {
				t.Errorf("%q was accepted: %+v", custom, r)
			}
			names[r.Name] = true
		}
		if len(got) > MaxCustomInterfaces || options != "" && !json.Valid([]byte(options)) {
			t.Errorf("%q with %q was accepted", custom, options)
		}
	})
}

// Whatever the sizes are, a memif that is accepted can take a packet of its MTU, through the annotation and through a
// claim.
func TestAcceptedRingsHoldAPacketOfTheMTU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ring := 1 << rapid.IntRange(1, 14).Draw(t, "ring")
		buffer := rapid.IntRange(64, 9100).Draw(t, "buffer")
		mtu := rapid.IntRange(576, MaxMTU).Draw(t, "mtu")
		options := fmt.Sprintf(`{"ringSize":%d,"bufferSize":%d,"mtu":%d}`, ring, buffer, mtu)
		_, err := InterfaceRequests(
			map[string]string{AnnotationCustom: "m1/memif", AnnotationOptions: `{"m1":` + options + `}`}, "eth0")
		if (err == nil) != (ring*buffer >= mtu+14) {
			t.Errorf("annotation %s: %v", options, err)
		}
		parameters := ClaimParameters{Interface: "m1"}
		if err := parameters.Merge([]byte(`{"apiVersion":"` + ClaimAPIVersion + `","kind":"` + ClaimKind +
			`","options":` + options + `}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := parameters.Request(); (err == nil) != (ring*buffer >= mtu+14) {
			t.Errorf("claim with %s: %v", options, err)
		}
	})
}

func TestOptionsOfAMemif(t *testing.T) {
	got, err := InterfaceRequests(map[string]string{
		AnnotationCustom: "m1/memif/blue",
		AnnotationOptions: `{"m1":{"container":"vnf","ringSize":512,"rxQueues":2,"txQueues":3,"bufferSize":4096,
			"mode":"ip","uid":0,"gid":4294967294,"mtu":1400}}`,
	}, "eth0")
	if err != nil || len(got) != 1 {
		t.Fatalf("%d interfaces, error %v", len(got), err)
	}
	o := got[0].Options
	if m := o.Memif; m.Container != "vnf" || m.RingSize != 512 || o.RxQueues != 2 || o.TxQueues != 3 ||
		m.BufferSize != 4096 || m.Mode != MemifIP {
		t.Errorf("parsed as %+v", m)
	}
	if o.MTU != 1400 || *o.Memif.UID != 0 || *o.Memif.GID != 1<<32-2 {
		t.Errorf("MTU %d, owner %v:%v", o.MTU, *o.Memif.UID, *o.Memif.GID)
	}
}

func TestPoolsAndAddressesKeepTheirOrder(t *testing.T) {
	annotations := map[string]string{AnnotationPools: ` ["b","a"] `, AnnotationIPs: `["fd00::7", "10.5.0.7"]`}
	pools, err := ParsePools(annotations)
	if err != nil || fmt.Sprint(pools) != "[b a]" {
		t.Errorf("pools %v, error %v", pools, err)
	}
	addresses, err := ParseAddresses(annotations)
	if err != nil || fmt.Sprint(addresses) != "[fd00::7 10.5.0.7]" {
		t.Errorf("addresses %v, error %v", addresses, err)
	}
}

func TestEmptyAnnotationsRequestNoPoolsAndAddresses(t *testing.T) {
	for _, text := range []string{"", "  "} {
		annotations := map[string]string{AnnotationPools: text, AnnotationIPs: text}
		if pools, err := ParsePools(annotations); pools != nil || err != nil {
			t.Errorf("%q: pools %v, error %v", text, pools, err)
		}
		if addresses, err := ParseAddresses(annotations); addresses != nil || err != nil {
			t.Errorf("%q: addresses %v, error %v", text, addresses, err)
		}
	}
}

func TestInvalidPoolsAndAddressesAreRejected(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{AnnotationPools, `pool`, "expected a JSON list of pool names"},
		{AnnotationPools, `[1]`, "expected a JSON list of pool names"},
		{AnnotationPools, `[""]`, "expected a JSON list of pool names"},
		{AnnotationPools, strings.Repeat("x", maxAnnotation+1), "at most 16384"},
		{AnnotationPools, `["a"` + strings.Repeat(`,"a"`, MaxPools) + `]`, "65 pools, at most 64 are possible"},
		{AnnotationIPs, `10.0.0.1`, "expected a JSON list of addresses"},
		{AnnotationIPs, `["10.0.0.1","10.0.0.2"]`, "second address of its family"},
		{AnnotationIPs, strings.Repeat("x", maxAnnotation+1), "at most 16384"},
	} {
		t.Run(tc.name+tc.text[:min(len(tc.text), 20)], func(t *testing.T) {
			annotations := map[string]string{tc.name: tc.text}
			_, err := ParsePools(annotations)
			if err == nil {
				_, err = ParseAddresses(annotations)
			}
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalidAnnotation || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), tc.name) {
				t.Errorf("got %v, want code 103 with %q and the annotation's name", err, tc.want)
			}
		})
	}
}

// The event loop looks for a similar known name of each unknown one, and a pod has room for thousands.
func TestErrorsOfUnknownAnnotationsAreBounded(t *testing.T) {
	annotations := map[string]string{AnnotationCustom: "x1/tap"}
	for i := range maxUnknown + 1 {
		annotations[fmt.Sprintf("%sx%02d", AnnotationPrefix, i)] = ""
	}
	errs := UnknownAnnotations(annotations)
	if len(errs) != maxUnknown || !strings.Contains(errs[maxUnknown-1].Error(), "unknown annotation contivpp.io/x15") {
		t.Errorf("%d errors: %v", len(errs), errs)
	}
}

// The options of an interface come by Multus from a NetworkAttachmentDefinition, which is not bounded as annotations
// are.
func TestOptionsOfADefinitionAreBoundedAsAnnotationsAre(t *testing.T) {
	if _, err := ParseOptions(`{"mtu": 1400` + strings.Repeat(" ", maxAnnotation) + "}"); err == nil ||
		!strings.Contains(err.Error(), "at most 16384 are read") {
		t.Errorf("error %v", err)
	}
	if o, err := ParseOptions(`{"mtu": 1400}`); err != nil || o.MTU != 1400 {
		t.Errorf("options %+v, error %v", o, err)
	}
	if _, err := ParseOptions(`{"mtu": 1400, "mac": "02:00:00:00:00:01", "mtu": 1400}`); err == nil ||
		!strings.Contains(err.Error(), `"mtu" occurs twice`) {
		t.Errorf("error %v", err)
	}
}

// FuzzPoolsAndAddresses parses arbitrary annotations with pools and addresses.
func FuzzPoolsAndAddresses(f *testing.F) {
	f.Add(`["blue","red"]`, `["10.0.0.1","fd00::1"]`)
	f.Add(`[""]`, `["10.0.0.1","10.0.0.2"]`)
	f.Add("null", "[\"::ffff:10.0.0.1\",\n\"fe80::1%eth0\"]")
	f.Fuzz(func(t *testing.T, pools, ips string) {
		annotations := map[string]string{AnnotationPools: pools, AnnotationIPs: ips}
		names, errPools := ParsePools(annotations)
		addresses, errIPs := ParseAddresses(annotations)
		for _, err := range []error{errPools, errIPs} {
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
		}
		if slices.Contains(names, "") || len(addresses) > 2 {
			t.Errorf("%q and %q were accepted: %q, %v", pools, ips, names, addresses)
		}
		for i, a := range addresses {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() || i == 1 && a.Is4() == addresses[0].Is4() {
				t.Errorf("%q was accepted: %v", ips, addresses)
			}
		}
	})
}
