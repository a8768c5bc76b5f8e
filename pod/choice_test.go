package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPoolsAndAddressesAreReadInTheirOrder(t *testing.T) {
	annotations := map[string]string{AnnotationPools: ` ["b","a"] `, AnnotationIPs: `["fd00::7", "10.5.0.7"]`}
	pools, err := PoolsAsked(annotations)
	if err != nil || fmt.Sprint(pools) != "[b a]" {
		t.Errorf("pools %v, error %v", pools, err)
	}
	addresses, err := AddressesAsked(annotations)
	if err != nil || fmt.Sprint(addresses) != "[fd00::7 10.5.0.7]" {
		t.Errorf("addresses %v, error %v", addresses, err)
	}
}

func TestNoAnnotationIsNoChoice(t *testing.T) {
	for _, text := range []string{"", "  "} {
		annotations := map[string]string{AnnotationPools: text, AnnotationIPs: text}
		if pools, err := PoolsAsked(annotations); pools != nil || err != nil {
			t.Errorf("%q: pools %v, error %v", text, pools, err)
		}
		if addresses, err := AddressesAsked(annotations); addresses != nil || err != nil {
			t.Errorf("%q: addresses %v, error %v", text, addresses, err)
		}
	}
}

func TestAWrongChoiceIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{AnnotationPools, `pool`, "expected a JSON list of names"},
		{AnnotationPools, `[1]`, "expected a JSON list of names"},
		{AnnotationPools, `[""]`, "expected a JSON list of names"},
		{AnnotationPools, strings.Repeat("x", maxAnnotation+1), "at most 16384"},
		{AnnotationIPs, `10.0.0.1`, "expected a JSON list of addresses"},
		{AnnotationIPs, `["10.0.0.1","10.0.0.2"]`, "second address of its family"},
		{AnnotationIPs, strings.Repeat("x", maxAnnotation+1), "at most 16384"},
	} {
		t.Run(tc.name+tc.text[:min(len(tc.text), 20)], func(t *testing.T) {
			annotations := map[string]string{tc.name: tc.text}
			_, err := PoolsAsked(annotations)
			if err == nil {
				_, err = AddressesAsked(annotations)
			}
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalidAnnotation || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.name) {
				t.Errorf("got %v, want code 103 with %q and the annotation's name", err, tc.want)
			}
		})
	}
}
