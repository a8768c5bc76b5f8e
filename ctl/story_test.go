package ctl

import (
	"strings"
	"testing"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func TestAPodThatIsNotCheckedIsDegraded(t *testing.T) {
	s := &story{
		attachments: []*operatorv1.AttachmentInfo{{}, {NotChecked: "linux.route: more objects than the agent reads"}},
	}
	if state, cause := s.state(); state != podDegraded || !strings.Contains(cause, "linux.route: more objects") {
		t.Errorf("it is %s: %s", state, cause)
	}
	s.attachments[1].NotChecked = ""
	if state, cause := s.state(); state != podRunning || cause != "" {
		t.Errorf("a pod that is checked is %s: %s", state, cause)
	}
	s = &story{
		attachments: []*operatorv1.AttachmentInfo{{NotChecked: "many"}},
		unsettled:   []*operatorv1.Object{{Ref: "linux.veth/a", Phase: "Failed"}},
	}
	if _, cause := s.state(); !strings.Contains(cause, "linux.veth/a") {
		t.Errorf("the cause is %s, not the object that failed", cause)
	}
}
