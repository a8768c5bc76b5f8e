package memif_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
)

// Users of the tests; the machine need not know them.
const (
	owner    = 1000
	member   = 1234 // another user of the group
	stranger = 1001
	group    = 4321
)

// requireUsers skips the test where root cannot change users, and fails it there if WEFT_REQUIRE contains root.
func requireUsers(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	if n, err := strconv.Atoi(fields[len(fields)-1]); os.Geteuid() == 0 && err == nil && n > member {
		return
	}
	const why = "this needs root outside a user namespace of a single user: run it as root"
	if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "root") {
		t.Fatal(why)
	}
	t.Skip(why)
}

func as(uid, gid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: gid} }

// openToAll makes the parents of the socket directories accessible for all users, as they are on a node.
func (l *lab) openToAll() {
	l.Helper()
	for _, dir := range []string{l.Dir, l.Dir + "/run"} {
		l.try(os.Chmod(dir, 0o755)) //nolint:gosec // accessible on purpose
	}
}

// The pod declares the owner of its memif.
func TestUnprivilegedOwnerConnectsAndFileModesRefuseOtherUsers(t *testing.T) {
	requireUsers(t)
	l := newLab(t, node.Options{})
	l.openToAll()
	a := l.neighbour("a")
	options := fmt.Sprintf(`{"m1":{"uid":%d,"gid":%d}}`, owner, group)
	d, containers := l.admit("d", "m1/memif", options, kubelettest.Container{Name: "vnf", Limit: 1})
	vnf := containers[0]
	l.modes(vnf, 0, 0, map[string]fs.FileMode{"": fs.ModeDir | 0o700, "secret": 0o400}) // root's until its pod is known
	m1 := l.add(d)[1]
	l.modes(vnf, owner, group, map[string]fs.FileMode{
		"": fs.ModeDir | fs.ModeSetgid | 0o750, "memif.sock": fs.ModeSocket | 0o660, "secret": 0o440,
		"interfaces.json": 0o440,
	})
	for _, user := range []*syscall.Credential{as(owner, owner), as(member, group)} {
		responder := l.startAs(user, d, vnf, "icmpresponder")
		l.awaitOutput(responder, "m1: connected to")
		l.reach(a, m1.Bare()[0])
		responder.end()
	}
	refused := l.startAs(as(stranger, stranger), d, vnf, "icmpresponder")
	l.awaitOutput(refused, "/run/memif/interfaces.json: permission denied")
	<-refused.ended
	for _, path := range []string{directory(vnf), m1.SocketPath, inDirectory(vnf, "secret")} {
		l.closedTo(as(owner, group), path) // through the node's path
	}
}

// If the group is unknown, every user of the container can connect, and no other user can open the directory.
func TestEveryUserOfTheContainerConnectsIfTheGroupIsUnknown(t *testing.T) {
	requireUsers(t)
	l := newLab(t, node.Options{})
	l.openToAll()
	a := l.neighbour("a")
	d, both := l.admit("d", "m1/memif,m2/memif", "",
		kubelettest.Container{Name: "left", Limit: 1}, kubelettest.Container{Name: "right", Limit: 1})
	links := l.add(d)
	for i, c := range both {
		l.modes(c, 0, 0, map[string]fs.FileMode{
			"": fs.ModeDir | 0o755, "memif.sock": fs.ModeSocket | 0o666, "secret": 0o444, "interfaces.json": 0o444,
		})
		responder := l.startAs(as(stranger, stranger), d, c, "icmpresponder")
		l.awaitOutput(responder, links[1+i].Name+": connected to")
		l.reach(a, links[1+i].Bare()[0])
		l.closedTo(as(stranger, stranger), directory(c))
		l.closedTo(as(stranger, stranger), inDirectory(c, "secret"))
	}
	// The programs of the containers see only their own mounts of the node, not the other container's directory.
	for i, c := range both {
		others := directory(both[1-i])
		if out := l.lists(d, c, others); !strings.Contains(out, "No such file") {
			t.Errorf("container %s sees %s: %s", c.Name, others, out)
		}
		if out := l.lists(d, c, "/run/memif"); out != "interfaces.json\nmemif.sock\nsecret\n" {
			t.Errorf("container %s sees %s", c.Name, out)
		}
	}
}

// modes compares owners and modes of a container's directory on the node.
func (l *lab) modes(c kubelettest.Container, uid, gid uint32, want map[string]fs.FileMode) {
	l.Helper()
	for name, mode := range want {
		info, err := os.Lstat(inDirectory(c, name))
		l.try(err)
		has := info.Sys().(*syscall.Stat_t)
		if info.Mode() != mode || has.Uid != uid || has.Gid != gid {
			l.Errorf("%q is of %d:%d with mode %s, want %d:%d and %s", name, has.Uid, has.Gid, info.Mode(), uid, gid,
				mode)
		}
	}
}

// ls lists a directory.
const ls = "/bin/ls"

// closedTo expects that a user outside of a container cannot read a path.
func (l *lab) closedTo(user *syscall.Credential, path string) {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), ls, path)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		l.Errorf("user %d sees %s: %s (%v)", user.Uid, path, out, err)
	}
}

// lists returns a container's listing of a directory.
func (l *lab) lists(p *node.Pod, c kubelettest.Container, path string) string {
	l.Helper()
	r := l.start(p, c, ls, path)
	<-r.ended
	return r.out.String()
}
