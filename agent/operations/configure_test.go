package operations

import (
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// newConfigured returns a server with an event loop that decodes external values of Linux kinds, but does not apply
// them.
func newConfigured(t *testing.T) (*Server, *eventlooptest.Committer) {
	s := kvscheduler.New(kvscheduler.Config{})
	if err := linux.Register(s, linux.Options{}); err != nil {
		t.Fatal(err)
	}
	committer := &eventlooptest.Committer{}
	loop := eventloop.New(eventloop.Config{Committer: committer, External: external.Codec{Scheduler: s}})
	eventlooptest.Ready(t, loop)
	return New(Config{Loop: loop, Scheduler: s}), committer
}

func (o *Server) configured(t *testing.T, source, document string) []string {
	t.Helper()
	reply, err := o.Configure(t.Context(), &operatorv1.ConfigureRequest{Source: source, Document: []byte(document)})
	if err != nil || reply.Error != "" {
		t.Errorf("configure %s: %v, %s", source, err, reply.GetError())
	}
	slices.Sort(reply.Dropped)
	return reply.Dropped
}

// The keys of two sysctls, and the valid fields of the second.
const (
	validKey = "linux.sysctl/linux.veth/x/net/a"
	key      = "linux.sysctl/linux.veth/x/net/b"
	fields   = "'on': linux.veth/x, name: net/b, value: '0'"
)

func TestInvalidValueIsDroppedAndOtherValuesAreApplied(t *testing.T) {
	const valid = validKey + ": {'on': linux.veth/x, name: net/a, value: '0'}\n"
	for name, tc := range map[string]struct{ value, want string }{
		"an unknown field": {
			key + ": {" + fields + ", vallue: '1'}", key + `: decode: unknown field "vallue"`,
		},
		"a field in another spelling": {
			key + ": {" + fields + ", Value: '1'}", key + `: decode: unknown field "Value"`,
		},
		"one of a kind with a stored form of its own": {
			"linux.file//x/y: {type: file, mode: 0600, secret: s, contents: z}",
			`linux.file//x/y: decode: unknown field "contents"`,
		},
		"a value of another type": {key + ": {'on': [1]}", key + ": decode: on: expected a string, not a list"},
		"an unknown kind":         {"linux.sysctls/x: {}", "linux.sysctls/x: decode: unknown kind of linux.sysctls/x"},
		"a key without a name": {
			"linux.sysctl: {}", `linux.sysctl: decode: key "linux.sysctl" is not of the form kind/name`,
		},
		"no value":         {key + ":", key + ": null would delete the object"},
		"an invalid value": {key + ": {'on': linux.veth/x, name: ../b}", key + ": invalid: "},
	} {
		t.Run(name, func(t *testing.T) {
			o, committer := newConfigured(t)
			dropped := o.configured(t, "lab", valid+tc.value)
			if len(dropped) != 1 || !strings.HasPrefix(dropped[0], tc.want) {
				t.Errorf("dropped %q, want %q", dropped, tc.want)
			}
			if values := committer.External(); len(values) != 1 || values[validKey] == nil {
				t.Errorf("applied %v", values)
			}
		})
	}
}

func TestValuesOfOtherSourcesAreNotReportedAsDropped(t *testing.T) {
	o, _ := newConfigured(t)
	if dropped := o.configured(t, "other", key+": {"+fields+", others: '1'}"); len(dropped) != 1 {
		t.Errorf("dropped %q", dropped)
	}
	if dropped := o.configured(t, "lab", key+": {"+fields+"}"); len(dropped) != 0 {
		t.Errorf("dropped %q", dropped)
	}
	if dropped := o.configured(t, "lab", ""); len(dropped) != 0 {
		t.Errorf("dropped %q", dropped)
	}
}
