package ctl

import (
	"bytes"
	"strings"
	"testing"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Counters that cannot be read are not counters without packets.
func TestPolicySaysWhyCountersCannotBeRead(t *testing.T) {
	reply := &operatorv1.PolicyReply{
		Interfaces: []*operatorv1.PolicyRules{{Interface: "eth0", Ingress: []*operatorv1.PolicyRule{{Remote: "::/0"}}}},
	}
	for _, tt := range []struct{ failure, want string }{
		{"", "no packets counted\n"},
		{"stats segment: permission\ndenied", "counters cannot be read: stats segment: permission denied\n"},
	} {
		var out bytes.Buffer
		reply.CountsError = tt.failure
		printPolicy(&printer{out: &out}, reply)
		if got := out.String(); !strings.HasSuffix(got, "\n\n"+tt.want) {
			t.Errorf("with the error %q:\n%s\nwant at its end %q", tt.failure, got, tt.want)
		}
	}
}

func TestPolicySaysWhatIsNotAppliedCompletely(t *testing.T) {
	var out bytes.Buffer
	printPolicy(&printer{out: &out}, &operatorv1.PolicyReply{
		OverLimits: []string{"NetworkPolicy shop/big: it is too large", "Service a/b"},
	})
	if want := "\nnot applied completely:\n  NetworkPolicy shop/big: it is too large\n  Service a/b\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want at its end %q", out.String(), want)
	}
}
