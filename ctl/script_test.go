package ctl_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/ctl/ctltest"
	"github.com/weftnet/weft/k8s/k8stest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// scenarios change the replies of the agent, by the argument of the script command "agent".
var scenarios = map[string]func(*ctltest.Replies){
	"normal": func(*ctltest.Replies) {},
	"empty": func(r *ctltest.Replies) {
		r.Attachments = nil
		r.Addresses = nil
		r.Objects = nil
		r.Counters = nil
		r.Events = nil
		r.Transactions = nil
		r.Why = &operatorv1.WhyReply{Lines: []string{`no objects with prefix "vpp.x"; weftctl objects lists all`}}
	},
	"not-ready": func(r *ctltest.Replies) {
		r.State.Ready = false
		r.State.Conditions[1] = &operatorv1.Condition{Name: "dataplane", Message: "connecting to /run/weft/api.sock"}
	},
	"unenforced": func(r *ctltest.Replies) {
		r.State.Conditions = append(r.State.Conditions, &operatorv1.Condition{
			Name:    "policies",
			Message: "network policies: 3 are not enforced; set kubernetes.enforcePolicies: true, or kubernetes.reportNetworkPolicies: false where another component enforces them",
		})
	},
	"explained": func(r *ctltest.Replies) {
		r.Policy = &operatorv1.PolicyReply{Verdict: &operatorv1.PolicyVerdict{
			From:    "10.1.1.5",
			To:      "10.1.0.5",
			Egress:  &operatorv1.PolicyDecision{Allow: true, Origin: "no policy selects the pod"},
			Ingress: &operatorv1.PolicyDecision{Origin: "NetworkPolicy shop/db ingress: no rule allows it"},
		}}
	},
	"unrestricted":  func(r *ctltest.Replies) { r.Policy = &operatorv1.PolicyReply{} },
	"silent":        func(r *ctltest.Replies) { r.Silent = true },
	"stopping":      func(r *ctltest.Replies) { r.Stops = true },
	"other-version": func(r *ctltest.Replies) { r.Err = status.Error(codes.Unimplemented, "unknown method") },
	"no-counters": func(r *ctltest.Replies) {
		r.Err = status.Error(codes.FailedPrecondition,
			"stats segment not readable: connect to stats socket: no such file or directory")
	},
	"refusing": func(r *ctltest.Replies) { r.Err = errors.New("peer is not root") },
	"failing": func(r *ctltest.Replies) {
		r.Resync = &operatorv1.ResyncReply{Event: 7, Error: "commit:\n2 objects stuck"}
	},
	"accepting": func(r *ctltest.Replies) { r.Configure = &operatorv1.ConfigureReply{Event: 4} },
	"rejecting": func(r *ctltest.Replies) { r.Configure = &operatorv1.ConfigureReply{Error: "no YAML\nat all"} },
	"busy":      func(r *ctltest.Replies) { r.Resync = &operatorv1.ResyncReply{Error: "event queue is full"} },
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("WEFT_SOCKET", filepath.Join(env.WorkDir, "agent.sock"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent": startAgent,
			"apiserver": func(ts *testscript.TestScript, _ bool, files []string) { // apiserver KUBECONFIG...
				server := k8stest.New(t)
				for _, name := range files {
					ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(name)), 0o700))
					ts.Check(writeKubeconfig(ts.MkAbs(name), server.Connection().Host))
				}
			},
		},
	})
}

// startAgent is the script command "agent SCENARIO": it starts a fake agent at $WEFT_SOCKET until the script ends.
func startAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || scenarios[args[0]] == nil {
		ts.Fatalf("usage: agent SCENARIO")
	}
	replies := ctltest.Sample(time.Now())
	scenarios[args[0]](&replies)
	_, stop, err := ctltest.Serve(ts.Getenv("WEFT_SOCKET"), replies)
	ts.Check(err)
	ts.Defer(stop)
}
