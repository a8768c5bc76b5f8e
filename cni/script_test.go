package cni

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weftnet/weft/cni/cnitest"
	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

var update = flag.Bool("update", false, "write what is printed into the scripts")

// answer is the agent's reply to an ADD with addresses of both families.
func answer(netns string) *weftv1.AddReply {
	return &weftv1.AddReply{
		Interfaces: []*weftv1.Interface{
			{Name: "eth0", Mac: "02:fe:00:00:00:01", Mtu: 1450, Sandbox: netns},
			{Name: "memif1", Mtu: 2048, Sandbox: netns, SocketPath: "/run/weft/memif/a/memif.sock"},
		},
		Ips: []*weftv1.IP{
			{Address: "10.1.1.5/32", Gateway: "169.254.1.1", Interface: 0},
			{Address: "fd00::5/128", Gateway: "fe80::1", Interface: 0},
		},
		Routes: []*weftv1.Route{
			{Destination: "0.0.0.0/0", Gateway: "169.254.1.1"},
			{Destination: "::/0", Gateway: "fe80::1"},
		},
	}
}

// TestScripts runs the binary against a fake agent. The scripts have these additional
// commands:
//
//	conf VERSION [MEMBERS]     write conf.json, the plugin's stdin
//	macvlan VERSION [MEMBERS]  write conf.json, the stdin of weft-ipam when macvlan executes it
//	agent BEHAVIOUR...|stop    start an agent with this behaviour, or stop it
//	agent had [none]           set whether Find returns the attachment of an earlier ADD
//	answer FILE                set the reply to an ADD
//	asked                      print the requests since the last time
//	queued N                   check that N DELs are queued
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup:         setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"conf": writeConf, "macvlan": writeMacvlanConf, "pools": writePoolsConf, "agent": runAgent,
			"answer": setAnswer, "asked": asked, "queued": queued,
		},
	})
}

type agentKey struct{}

// fakeAgent is the agent of one script.
type fakeAgent struct {
	*cnitest.Agent
	stop func()
	t    testing.TB
}

func setup(env *testscript.Env) error {
	const netns = "/run/netns/blue"
	env.Setenv("PATH", binaries+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("CNI_PATH", "/opt/cni/bin")
	env.Setenv(PathsVariable, PathsFromConfiguration)
	env.Setenv("CNI_CONTAINERID", "c0ffee00c0ffee")
	env.Setenv("CNI_IFNAME", "eth0")
	env.Setenv("CNI_NETNS", netns)
	env.Setenv("CNI_ARGS",
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=6f1c-11;K8S_POD_INFRA_CONTAINER_ID=c0ffee00c0ffee")
	env.Values[agentKey{}] = &fakeAgent{
		Agent: &cnitest.Agent{
			Answer: answer(netns),
			Error: &weftv1.Error{
				Code:    100,
				Msg:     "pod shop/cart-0: pool default is exhausted",
				Details: "tap not found",
			},
		},
		t: env.T().(testing.TB),
	}
	return nil
}

func writeConf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: conf VERSION [MEMBERS]")
	}
	members := fmt.Sprintf(`"cniVersion":%q,"name":"weft","type":"weft-cni","socket":%q,"deleteQueue":%q`,
		args[0], ts.MkAbs("agent.sock"), ts.MkAbs("queue"))
	write(ts, members, args[1:])
}

func writeMacvlanConf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: macvlan VERSION [MEMBERS]")
	}
	write(ts, fmt.Sprintf(`"cniVersion":%q,"name":"weft","type":"macvlan","mode":"bridge","master":"eth7","mtu":1400,
		"runtimeConfig":{"ips":["10.3.0.7"],"bandwidth":{"ingressRate":1000}},"ipam":{"type":"weft-ipam","socket":%q,"deleteQueue":%q,"routes":[{"dst":"0.0.0.0/0"}]}`,
		args[0], ts.MkAbs("agent.sock"), ts.MkAbs("queue")), args[1:])
}

// writePoolsConf writes a configuration with additional members in ipam: pools MEMBERS.
func writePoolsConf(ts *testscript.TestScript, _ bool, args []string) {
	write(ts,
		fmt.Sprintf(
			`"cniVersion":"1.0.0","name":"weft","type":"macvlan","ipam":{"type":"weft-ipam","socket":%q,"deleteQueue":%q,%s}`,
			ts.MkAbs("agent.sock"), ts.MkAbs("queue"), strings.Join(args, ",")), nil)
}

func write(ts *testscript.TestScript, members string, more []string) {
	text := "{" + strings.Join(append([]string{members}, more...), ",") + "}"
	ts.Check(os.WriteFile(ts.MkAbs("conf.json"), []byte(text), 0o600))
}

func setAnswer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answer FILE")
	}
	reply := &weftv1.AddReply{}
	ts.Check(protojson.Unmarshal([]byte(ts.ReadFile(args[0])), reply))
	ts.Value(agentKey{}).(*fakeAgent).Answer = reply
}

func runAgent(ts *testscript.TestScript, _ bool, args []string) {
	agent := ts.Value(agentKey{}).(*fakeAgent)
	if len(args) > 0 && args[0] == "had" {
		agent.Had = agent.Answer
		if len(args) == 2 {
			agent.Had = nil
		}
		return
	}
	if agent.stop != nil {
		agent.stop()
	}
	if len(args) == 1 && args[0] == "stop" {
		return
	}
	var behaviour []cnitest.Behaviour
	for _, a := range args {
		behaviour = append(behaviour, cnitest.Behaviour(a))
	}
	agent.Behave(behaviour...)
	agent.stop = agent.Listen(agent.t, ts.MkAbs("agent.sock"))
	ts.Defer(agent.stop)
}

func asked(ts *testscript.TestScript, _ bool, _ []string) {
	requests := ts.Value(agentKey{}).(*fakeAgent).Requests()
	if len(requests) == 0 {
		_, _ = fmt.Fprintln(ts.Stdout(), "nothing")
	}
	for _, req := range requests {
		b, err := protojson.Marshal(req)
		ts.Check(err)
		var compact bytes.Buffer // protojson randomises white space
		ts.Check(json.Compact(&compact, b))
		name := strings.TrimSuffix(string(req.ProtoReflect().Descriptor().Name()), "Request")
		_, _ = fmt.Fprintln(ts.Stdout(), name, compact.String())
	}
}

func queued(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	queue, err := deletequeue.Open(ts.MkAbs("queue"))
	ts.Check(err)
	if got, err := queue.Len(); err != nil || got != want {
		ts.Fatalf("%d deletes are queued (%v), not %d", got, err, want)
	}
}
