package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// envArgs are the keys of CNI_ARGS that are known; their names are the interface.
//
//nolint:revive // underscores
type envArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE          types.UnmarshallableString
	K8S_POD_NAME               types.UnmarshallableString
	K8S_POD_UID                types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
	IP                         types.UnmarshallableString
	MAC                        types.UnmarshallableString
}

// The forms of DNS-1123, which Kubernetes gives names.
var (
	dnsLabel     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

const maxSubdomain = 253

// parseArgs reads CNI_ARGS. Without any K8S_ key it is a container that no Kubernetes knows.
func parseArgs(text string) (*envArgs, error) {
	var args envArgs
	if err := types.LoadArgs(text, &args); err != nil {
		return nil, environment("CNI_ARGS: " + withoutValues(strings.TrimPrefix(err.Error(), "ARGS: "), text))
	}
	namespace, name, uid := string(args.K8S_POD_NAMESPACE), string(args.K8S_POD_NAME), string(args.K8S_POD_UID)
	switch {
	case (namespace == "") != (name == ""):
		return nil, environment("CNI_ARGS: K8S_POD_NAMESPACE and K8S_POD_NAME are needed together")
	case namespace != "" && !dnsLabel.MatchString(namespace):
		return nil, environment(fmt.Sprintf("CNI_ARGS: K8S_POD_NAMESPACE %.80q is no name of a namespace", namespace))
	case name != "" && (len(name) > maxSubdomain || !dnsSubdomain.MatchString(name)):
		return nil, environment(fmt.Sprintf("CNI_ARGS: K8S_POD_NAME %.80q is no name of a pod", name))
	case uid != "" && (len(uid) > maxSubdomain || !dnsSubdomain.MatchString(uid)):
		return nil, environment(fmt.Sprintf("CNI_ARGS: K8S_POD_UID %.80q is no UID", uid))
	}
	return &args, nil
}

// withoutValues leaves the values of args out of an error that quotes them: who misspells a key may have put anything there.
func withoutValues(message, args string) string {
	for pair := range strings.SplitSeq(args, ";") {
		key, _, _ := strings.Cut(pair, "=")
		message = strings.ReplaceAll(message, strconv.Quote(pair), strconv.Quote(key))
	}
	return message
}

func (a *envArgs) pod() *weftv1.Pod {
	return &weftv1.Pod{Namespace: string(a.K8S_POD_NAMESPACE), Name: string(a.K8S_POD_NAME), Uid: string(a.K8S_POD_UID)}
}

func environment(text string) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, text, "")
}

// maxID bounds the container id and the network's name: they are parts of keys.
const maxID = 256

// validEnvironment checks what skel leaves unchecked.
func (c *call) validEnvironment() error {
	if err := c.possibleKey(); err != nil {
		return err
	}
	switch {
	case slices.Contains(reservedNames, c.IfName) || strings.Contains(c.IfName, "%"):
		return impossibleName(c.IfName)
	case !filepath.IsAbs(c.Netns) || strings.ContainsRune(c.Netns, '\n'):
		return environment(fmt.Sprintf("CNI_NETNS %.200q is not an absolute path", c.Netns))
	}
	return nil
}

// reservedNames are those that the kernel gives no link of a pod: each namespace has a lo, and the others are directories of
// /proc/sys/net/ipv4/conf. A % stands for a number that the kernel chooses.
var reservedNames = []string{"lo", "all", "default"}

func impossibleName(name string) error {
	return environment(fmt.Sprintf("CNI_IFNAME %q cannot be the name of an interface", name))
}

// possibleKey refuses a container, network or interface of which no agent, of whatever release, has an attachment.
func (c *call) possibleKey() error {
	switch {
	case len(c.ContainerID) > maxID:
		return environment(fmt.Sprintf("CNI_CONTAINERID has more than %d characters", maxID))
	case len(c.network()) > maxID:
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("network configuration: name has more than %d characters",
			maxID-len(c.network())+len(c.conf.Name)), "")
	case strings.ContainsFunc(c.IfName, func(r rune) bool { return r <= ' ' || r > '~' }):
		return impossibleName(c.IfName)
	}
	return nil
}

// foreignNetns refuses the runtime's own network namespace, in which the plugin runs, and what is no namespace at all. It opens
// nothing: a FIFO would hold it up. A path that leads nowhere is left to the agent.
func (c *call) foreignNetns() error {
	if c.ownNetnsAllowed() {
		return nil
	}
	fd, err := unix.Open(c.Netns, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var system unix.Statfs_t
	var there, own unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &there), unix.Stat("/proc/thread-self/ns/net", &own)); err != nil {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s: %v", c.Netns, err), "")
	}
	switch {
	case system.Type != unix.NSFS_MAGIC:
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s is not a network namespace", c.Netns), "")
	case there.Ino == own.Ino && there.Dev == own.Dev:
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s is the network namespace of the runtime itself", c.Netns), "")
	}
	return nil
}

// confArgs is what Weft understands of the configuration's args; the rest is not Weft's.
type confArgs struct {
	CNI struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"cni"`
}

// requested chooses who may ask for addresses and a MAC: the runtime, the configuration's args, then CNI_ARGS.
func (c *call) requested(env *envArgs) (ips []string, mac string, err error) {
	var args confArgs
	if json.Unmarshal(c.conf.Args, &args) != nil {
		args = confArgs{} // args are never refused
	}
	if err := c.conf.RuntimeConfig.unserved(); err != nil && !c.role.ipam { // the capabilities are those of the plugin that calls weft-ipam
		return nil, "", err
	}
	ips = firstList(c.conf.RuntimeConfig.IPs, args.CNI.IPs, splitList(string(env.IP)))
	for _, ip := range ips {
		if !isAddress(ip) {
			return nil, "", types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s: requested address %.60q is invalid: give an IPv4 or IPv6 address, with or without a prefix length", c.name(env.pod()), ip), "")
		}
	}
	mac = firstText(c.conf.RuntimeConfig.MAC, args.CNI.MAC, string(env.MAC))
	if hw, err := net.ParseMAC(mac); mac != "" && (err != nil || len(hw) != 6) {
		return nil, "", types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s: requested MAC %.60q is invalid: give six octets as 02:00:00:00:00:01", c.name(env.pod()), mac), "")
	}
	return ips, mac, nil
}

func isAddress(text string) bool {
	_, addr := netip.ParseAddr(text)
	_, prefix := netip.ParsePrefix(text)
	return addr == nil || prefix == nil
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func firstList(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

func firstText(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
